/** Stands in for link-poller.ts in a browser, whose links deliver by themselves. */
export const pollLink = (): undefined => undefined;
