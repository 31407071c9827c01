/** Built-in types of all realms: frames, Workers and contexts of node:vm have their own. */

/** A Uint8Array, also a Buffer, or one of another realm (a frame, a context of node:vm). */
export function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array || tagOf(value) === 'Uint8Array';
}

/** The name of a built-in type, in all realms: `ArrayBuffer`. */
export function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}
