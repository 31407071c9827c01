/** The forms of `socket.send`, as Node's documentation has them. */

export type SendCallback = (error: Error | null, bytes: number) => void;

export interface SendRequest {
  readonly pieces: readonly Uint8Array[];
  readonly length: number;
  /** Undefined: where the socket is connected to. */
  readonly port: number | undefined;
  readonly address: string | undefined;
  readonly callback: SendCallback | undefined;
}

/** A datagram whose destination is resolved. */
export type Addressed = SendRequest & {
  readonly port: number;
  readonly address: string;
  /** The address as the program named it. */
  readonly name?: string | undefined;
};

/** Written out: V8 copies an object by spread ten times as slowly. */
export function addressed(request: SendRequest, address: string, port: number): Addressed {
  const { pieces, length, callback } = request;
  return { pieces, length, port, address, callback, name: request.address };
}

function bytesOf(piece: unknown): Uint8Array | undefined {
  if (typeof piece === 'string') return Buffer.from(piece);
  if (!ArrayBuffer.isView(piece)) return undefined;
  // That of a buffer that was transferred is empty, and can have no view.
  if (piece.byteLength === 0) return new Uint8Array(0);
  return new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength);
}

function slice(bytes: Uint8Array, offset: unknown, length: unknown): Uint8Array | undefined {
  const isIndex = (value: unknown): value is number =>
    Number.isInteger(value) && Number(value) >= 0;
  if (!isIndex(offset) || !isIndex(length) || offset + length > bytes.length) return undefined;
  return bytes.subarray(offset, offset + length);
}

/** Undefined: there is something odd about it, and Node says what. */
export function parseSend(args: readonly unknown[], isConnected: boolean): SendRequest | undefined {
  if (isConnected && !isConnectedForm(args)) return undefined;
  const [message, ...rest] = args;
  let callback: SendCallback | undefined;
  while (rest.length > 0) {
    const last = rest.at(-1);
    if (typeof last === 'function' && !callback) callback = last as SendCallback;
    else if (last !== undefined && last !== null) break;
    rest.pop();
  }
  let pieces: readonly (Uint8Array | undefined)[];
  if (rest.length >= (isConnected ? 1 : 3)) {
    const bytes = bytesOf(message);
    pieces = [bytes && slice(bytes, rest.shift(), rest.shift())];
  } else {
    pieces = Array.isArray(message) ? message.map(bytesOf) : [bytesOf(message)];
  }
  if (!pieces.every((piece) => piece !== undefined)) return undefined;
  const [port, address, ...surplus] = rest;
  if (surplus.length > 0 || (isConnected && rest.length > 0)) return undefined;
  if (!isConnected && !isPort(port)) return undefined;
  if (address !== undefined && address !== null && typeof address !== 'string') return undefined;
  return {
    pieces,
    length: pieces.reduce((sum, piece) => sum + piece.length, 0),
    port: isConnected ? undefined : Number(port),
    address: address || undefined,
    callback,
  };
}

/**
 * `(message, callback)`, or `(message, offset, length, callback)`, where the callback may also be
 * the sixth argument, behind no port and no address. All others are errors, or lose the callback.
 */
function isConnectedForm(args: readonly unknown[]): boolean {
  const [, second, third, fourth, fifth, sixth] = args;
  const isCallback = (value: unknown): boolean => !value || typeof value === 'function';
  if (args.length > 6 || fifth) return false;
  if (typeof third === 'number') return isCallback(fourth) && isCallback(sixth);
  return isCallback(second) && !third && !fourth && !sixth;
}

function isPort(port: unknown): boolean {
  const isNumber = typeof port === 'number' || (typeof port === 'string' && port.trim() !== '');
  return isNumber && Number.isInteger(Number(port)) && Number(port) > 0 && Number(port) < 65536;
}
