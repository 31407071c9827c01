/** Stands in for path-mtu-reason.ts in a browser, whose links have no such limit. */
export const pathMtuReason = (): undefined => undefined;
