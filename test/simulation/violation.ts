/** What no run may show: the engine, or the host, broke a promise. */
export class Violation extends Error {
  override readonly name = 'Violation';
}
