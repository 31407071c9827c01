/** Stands in for copy-bytes.ts in a browser, which has no call for it. */
export function copyBytes(target: Uint8Array, source: Uint8Array, at: number): void {
  target.set(source, at);
}

export function copyPieces(pieces: readonly Uint8Array[], target: Uint8Array): number {
  let at = 0;
  for (const piece of pieces) {
    target.set(piece, at);
    at += piece.length;
  }
  return at;
}
