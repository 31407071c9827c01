/** Calls `action` in a later turn of the event loop, after what has arrived by now. */
export function nextTurn(action: () => void): void {
  setImmediate(action);
}
