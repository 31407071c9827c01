/**
 * Stands in for next-turn.ts in a browser. A message to oneself: a timer would be rounded up to
 * four milliseconds.
 */
import type { Port } from './rtc/port-channel.js';

let actions: (() => void)[] = [];
const { port1, port2 } = new MessageChannel() as unknown as Record<'port1' | 'port2', Port>;
port1.onmessage = () => {
  const due = actions;
  actions = [];
  for (const action of due) action();
};

export function nextTurn(action: () => void): void {
  if (actions.push(action) === 1) port2.postMessage(undefined);
}
