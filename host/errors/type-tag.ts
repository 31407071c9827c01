/** Built-in types of any realm: each frame, Worker and context of node:vm has its own Uint8Array. */

/** A Uint8Array, also a Buffer, or one of another realm (a frame, a context of node:vm). */
export function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array || tagOf(value) === 'Uint8Array';
}

/** The name of a built-in type, in all realms: `ArrayBuffer`. */
export function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}
