/** Processes and what they have started: a browser is a dozen of them. */
import { existsSync, readFileSync, readdirSync } from 'node:fs';

/** Processor seconds so far: of this process, and of all that descend from it and are alive. */
export function treeCpuSeconds(): { readonly own: number; readonly children: number } {
  const children = descendantsOf(process.pid).reduce((sum, pid) => sum + cpuSecondsOf(pid), 0);
  return { own: cpuSecondsOf(process.pid), children };
}

/** All that descend from process `pid` and are alive. Where there is no /proc: none. */
export function descendantsOf(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of existsSync('/proc') ? readdirSync('/proc') : []) {
    const child = Number(name);
    const parent = Number.isInteger(child) ? parentOf(child) : undefined;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), child]);
  }
  const below = (from: number): number[] =>
    (children.get(from) ?? []).flatMap((child) => [child, ...below(child)]);
  return below(pid);
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

/** Processor seconds of the living threads of process `pid`; 0 where there is no /proc. */
export function cpuSecondsOf(pid: number): number {
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
