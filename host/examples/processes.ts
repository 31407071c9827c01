/** Common parts of examples with several processes: start, and messages in turn. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** Time in which a member ends after its disconnect, or after its parent process has died. */
const END_SECONDS = 10;

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Processes that run the same file, numbered from 0 on. Messages may hold bytes. */
export class Processes {
  readonly #members: readonly ChildProcess[];

  private constructor(members: readonly ChildProcess[]) {
    this.#members = members;
  }

  /** `url`: the file's `import.meta.url`; each gets its number and `args`. */
  static start(url: string, count: number, ...args: string[]): Processes {
    const file = fileURLToPath(url);
    return new Processes(
      Array.from({ length: count }, (_, index) =>
        fork(file, [`${index}`, ...args], { serialization: 'advanced' }),
      ),
    );
  }

  /** The same, each when the one before has said its first word; all receive `message`. */
  static async startInTurn(url: string, count: number, message: object): Promise<Processes> {
    const members: ChildProcess[] = [];
    while (members.length < count) {
      const member = fork(fileURLToPath(url), [`${members.length}`], { serialization: 'advanced' });
      members.push(member);
      member.send(message);
      await new Processes([member]).hear();
    }
    return new Processes(members);
  }

  tell(message: object): void {
    // A process that has ended is reported by the next `hear`.
    for (const member of this.#members) if (member.connected) member.send(message, () => {});
  }

  /** Next message of each of them, or of the first `count`. Rejects when one ends instead. */
  hear<Message>(count = this.#members.length): Promise<Message[]> {
    return Promise.all(
      this.#members.slice(0, count).map(
        (member, index) =>
          new Promise<Message>((resolve, reject) => {
            const ended = (code: number | null): void => {
              const how =
                code === null ? `was killed (${member.signalCode})` : `ended with ${code}`;
              reject(new Error(`process ${index} ${how}`));
            };
            if (hasEnded(member)) return ended(member.exitCode);
            member.once('exit', ended);
            member.once('message', (message) => {
              member.off('exit', ended);
              resolve(message as Message);
            });
          }),
      ),
    );
  }

  /** Without a word, as a crash would. */
  async kill(index: number): Promise<void> {
    const member = this.#members[index]!;
    member.kill('SIGKILL');
    if (!hasEnded(member)) await once(member, 'exit');
  }

  /** Ends all processes, also when the example fails. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  /** Asks them to end, and waits until they have. */
  async end(): Promise<void> {
    await Promise.all(
      this.#members.map(async (member) => {
        if (hasEnded(member)) return;
        const ended = once(member, 'exit');
        if (member.connected) member.disconnect();
        // The member may wait for a dead member.
        const late = setTimeout(() => member.kill('SIGKILL'), END_SECONDS * 1000);
        await ended;
        clearTimeout(late);
      }),
    );
  }
}

/** This process's number; undefined: it is the one that starts the others. */
export const member = process.argv[2] === undefined ? undefined : Number(process.argv[2]);

if (member !== undefined) {
  process.once('disconnect', () => {
    // A member that does not end by itself may wait for ever.
    setTimeout(() => {
      console.error(`process ${member}: its parent process and its peers have ended`);
      process.exit(1);
    }, END_SECONDS * 1000).unref();
  });
}

/** Sends a message to the parent process, if it still runs. */
export function say(message: object): void {
  if (process.connected) process.send!(message, () => {});
}

/** Waits for the next message of the parent process. */
export async function nextMessage<Message>(): Promise<Message> {
  return ((await once(process, 'message')) as [Message])[0];
}

/** Resolves when the parent process wants this one to end. */
export async function dismissed(): Promise<void> {
  if (process.connected) await once(process, 'disconnect');
}
