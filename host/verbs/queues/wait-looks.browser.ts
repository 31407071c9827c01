/** Stands in for wait-looks.ts in a browser: no wait spins. */
export class WaitLooks {
  goOn(): boolean {
    return false;
  }

  found(): void {}

  pause(): boolean {
    return false;
  }
}
