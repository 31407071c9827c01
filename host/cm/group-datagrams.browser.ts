/** Stands in for group-datagrams.ts in a browser: data channels have no groups. */
export function isToGroup(): undefined {}
