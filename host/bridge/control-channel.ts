/** Requests of the program and their replies (operations.ts), over a socket that both inherited. */
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { VerbenaError } from '../errors/errors.js';
import { withRunOptions } from './option-names.js';
import { MESSAGE_WORDS, OPERATIONS, type Operation } from './operations.js';

/** A word of a reply. */
export type Word = number | bigint;
/** Results of one operation; a refusal is thrown. */
export type Handler = (...words: bigint[]) => readonly Word[] | void;
export type Handlers = { readonly [Name in Operation]: Handler };

const HEAD_BYTES = 16;
const MESSAGE_BYTES = MESSAGE_WORDS * 8;
/** Bytes of a refusal's sentence at most: head and length come first. */
const SENTENCE_BYTES = MESSAGE_BYTES - HEAD_BYTES - 8;

/** C's errno of an error. */
function errnoOf(error: unknown): number {
  const { code } = error as NodeJS.ErrnoException;
  const { errno } = constants;
  // A broken rule of an argument is EINVAL in C.
  return errno[code as keyof typeof errno] ?? errno.EINVAL;
}

function refusal(error: unknown): Word[] {
  const text =
    error instanceof VerbenaError ? withRunOptions(error.message) : String((error as Error).stack);
  const sentence = Buffer.from(text).subarray(0, SENTENCE_BYTES);
  const words: Word[] = [errnoOf(error), sentence.length];
  const padded = Buffer.alloc(Math.ceil(sentence.length / 8) * 8);
  sentence.copy(padded);
  for (let at = 0; at < padded.length; at += 8) words.push(padded.readBigUInt64LE(at));
  return words;
}

/** Words of bytes, behind their length. */
export function wordsOf(bytes: Uint8Array): Word[] {
  const padded = Buffer.alloc(Math.ceil(bytes.length / 8) * 8);
  padded.set(bytes);
  const words: Word[] = [bytes.length];
  for (let at = 0; at < padded.length; at += 8) words.push(padded.readBigUInt64LE(at));
  return words;
}

export class ControlChannel {
  readonly #socket: Socket;
  readonly #handlers: Handlers;
  #pending: Buffer = Buffer.alloc(0);

  /** `ended`: the program has closed its end, or has ended. */
  constructor(socket: Socket, handlers: Handlers, ended: () => void) {
    this.#handlers = handlers;
    this.#socket = socket;
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk, ended));
    this.#socket.on('end', ended);
    this.#socket.on('error', ended);
  }

  #read(chunk: Buffer, ended: () => void): void {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= HEAD_BYTES) {
      const bytes = this.#pending.readBigUInt64LE(0);
      // The program's memory is damaged: its words mean nothing.
      if (bytes < HEAD_BYTES || bytes > MESSAGE_BYTES || bytes % 8n !== 0n) return ended();
      if (this.#pending.length < bytes) return;
      const message = this.#pending.subarray(0, Number(bytes));
      this.#pending = this.#pending.subarray(Number(bytes));
      this.#reply(this.#answer(message));
    }
  }

  #answer(message: Buffer): readonly Word[] {
    const operation = OPERATIONS[Number(message.readBigUInt64LE(8)) - 1];
    const words: bigint[] = [];
    for (let at = HEAD_BYTES; at < message.length; at += 8) words.push(message.readBigUInt64LE(at));
    try {
      if (!operation) throw new RangeError('unknown operation');
      return [0, ...(this.#handlers[operation](...words) ?? [])];
    } catch (error) {
      return refusal(error);
    }
  }

  #reply(words: readonly Word[]): void {
    const out = Buffer.alloc(8 * (words.length + 1));
    out.writeBigUInt64LE(BigInt(out.length), 0);
    words.forEach((word, index) => {
      out.writeBigUInt64LE(BigInt.asUintN(64, BigInt(word)), 8 * (index + 1));
    });
    if (this.#socket.writable && !this.#socket.write(out)) this.#waitForReader();
  }

  /** A program that sends requests and reads no reply does not fill this process's memory. */
  #waitForReader(): void {
    this.#socket.pause();
    this.#socket.once('drain', () => this.#socket.resume());
  }
}
