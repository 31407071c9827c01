/** `verbena doctor`: what is fast on this machine, what is missing, and how to get it. */
import { Exit, printLine } from '../base/report.js';
import { checksOf, type Check } from './checks.js';
import { gatherFacts } from './facts.js';

export interface DoctorOptions {
  readonly json?: boolean;
}

const STATE_WIDTH = 8;
const NAME_WIDTH = 18;

/** Ends with 1 if Verbena does not work here. */
export async function doctor({ json }: DoctorOptions): Promise<number> {
  const checks = checksOf(await gatherFacts());
  if (json) await printLine(JSON.stringify({ checks }));
  else for (const line of checks.flatMap(linesOf)) await printLine(line);
  return checks.some(({ state }) => state === 'failed') ? Exit.FAILED : Exit.OK;
}

function linesOf({ name, state, finding, remedy }: Check): string[] {
  const line = `${state.padEnd(STATE_WIDTH)} ${name.padEnd(NAME_WIDTH)} ${finding}`;
  if (remedy === undefined) return [line];
  return [line, `${' '.repeat(STATE_WIDTH + NAME_WIDTH + 2)}-> ${remedy}`];
}
