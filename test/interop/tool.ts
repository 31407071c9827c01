/** A program that an interop group needs. */
export interface Tool {
  readonly name: string;
  /** Of Debian and Ubuntu. */
  readonly aptPackage: string;
  /** Resolves with its version, or throws. */
  version(): Promise<string>;
}
