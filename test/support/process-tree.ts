/** What this process and a process tree below it have cost: a browser is a dozen processes. */
import { readFileSync, readdirSync } from 'node:fs';

/** Processor seconds so far: of this process, and of all that descend from it and are alive. */
export function treeCpuSeconds(): { readonly own: number; readonly children: number } {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    const parent = Number.isInteger(pid) ? parentOf(pid) : undefined;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const below = (pid: number): number =>
    (children.get(pid) ?? []).reduce((sum, child) => sum + secondsOf(child) + below(child), 0);
  return { own: secondsOf(process.pid), children: below(process.pid) };
}

function parentOf(pid: number): number | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name may have anything in it, parentheses too.
    return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}

function secondsOf(pid: number): number {
  let nanos = 0;
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const [ran] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1').split(' ');
      nanos += Number(ran);
    }
  } catch {
    // It ended just now.
  }
  return nanos / 1e9;
}
