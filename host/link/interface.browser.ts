/** Stands in for interface.ts in a browser, which hides the machine's interfaces. */

/** A page has no addresses to lose. */
export function lostAddress(): undefined {}

/** A page connects over data channels, which carry to one peer. */
export function checkUnicast(): void {}
