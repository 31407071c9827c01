/** Messages of the connection manager have one receiver. */

/** Was a datagram sent to a multicast group? `grh`: what stands before it, as in a receive buffer. */
export function isToGroup(grh: Uint8Array): boolean | undefined {
  return grh[0]! >> 4 === 6 ? grh[24] === 0xff : grh[36]! >> 4 === 14;
}
