/** Groups of interop checks, and their counts. */
import type { Lab } from './rxe/lab.js';
import type { Tool } from './tool.js';

/** Runs checks; each is one line of the output. */
export interface Report {
  /** `run` throws when the check fails. Returns whether it passed. */
  check(name: string, run: () => void | Promise<void>): Promise<boolean>;
  /** A line that is no check: versions, counts. */
  note(text: string): void;
  /** Adds the counts of another process, which printed its own lines. */
  add(counts: Counts): void;
}

export interface Counts {
  readonly passed: number;
  readonly failed: number;
}

export interface Group {
  readonly name: string;
  /** Whose opinion it asks for: every one that is missing is a failed check of its own. */
  readonly tools: readonly Tool[];
  run(report: Report): Promise<void>;
}

/** A group whose peers are Linux guests: it runs in a network namespace with them. */
export interface GuestGroup {
  readonly name: string;
  readonly tools: readonly Tool[];
  /** How many. */
  readonly guests: number;
  run(report: Report, lab: Lab): Promise<void>;
}

/** Checks that take longer print their duration. */
const SLOW_SECONDS = 1;

export class LineReport implements Report {
  passed = 0;
  failed = 0;
  readonly #write: (line: string) => void;

  constructor(write: (line: string) => void) {
    this.#write = write;
  }

  /** With lines in the same place, and a count of its own. */
  part(): LineReport {
    return new LineReport(this.#write);
  }

  async check(name: string, run: () => void | Promise<void>): Promise<boolean> {
    const started = performance.now();
    try {
      await run();
      this.passed++;
      const seconds = (performance.now() - started) / 1000;
      this.#write(`  ok      ${name}${seconds < SLOW_SECONDS ? '' : ` (${seconds.toFixed(1)} s)`}`);
      return true;
    } catch (error) {
      this.failed++;
      this.#write(`  FAILED  ${name}`);
      const reason = error instanceof Error ? error.message : String(error);
      for (const line of reason.split('\n')) this.#write(`            ${line}`);
      return false;
    }
  }

  note(text: string): void {
    this.#write(`          ${text}`);
  }

  add({ passed, failed }: Counts): void {
    this.passed += passed;
    this.failed += failed;
  }
}

/** Runs a group, unless a tool is missing: then none of its checks counts as passed. */
export async function runGroup(group: Group, report: Report): Promise<void> {
  if (await hasTools(group, report)) await runGuarded(group.name, () => group.run(report), report);
}

/** Says their versions. What is missing is a failed check that names its package. */
export async function hasTools(
  { name, tools }: Pick<Group, 'name' | 'tools'>,
  report: Report,
): Promise<boolean> {
  let missing = 0;
  for (const tool of tools) {
    try {
      report.note(`${tool.name}: ${await tool.version()}`);
    } catch (error) {
      missing++;
      await report.check(`${name} has ${tool.name}`, () => {
        const remedy = `${tool.name} is missing: apt-get install ${tool.aptPackage}`;
        throw new Error(`${remedy}\n(${(error as Error).message.split('\n', 1)[0]})`);
      });
    }
  }
  return missing === 0;
}

/** Runs a group; its exception is a failed check, too. */
export async function runGuarded(
  name: string,
  run: () => Promise<void>,
  report: Report,
): Promise<void> {
  try {
    await run();
  } catch (error) {
    await report.check(`${name} runs to its end`, () => {
      throw error;
    });
  }
}
