/** Stands in for group-datagrams.ts in a browser, whose links have no IP addresses. */
export function isToGroup(): undefined {}

export function checkFamily(): void {}
