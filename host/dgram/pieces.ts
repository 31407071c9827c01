/** Copies a datagram: its pieces in order, in memory of its own. */
export function copyPieces(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const copy = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    copy.set(piece, at);
    at += piece.length;
  }
  return copy;
}
