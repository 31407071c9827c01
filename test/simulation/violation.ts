/** Violation: the engine, or the host, broke a promise. No run may show one. */
export class Violation extends Error {
  override readonly name = 'Violation';
}
