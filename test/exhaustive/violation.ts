/** A rule of the checker was broken: the protocol is wrong, not the checker. */
export class Violation extends Error {}
