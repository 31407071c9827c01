/** The system refused to make bytes durable. */
export class SyncError extends Error {
  override readonly name = 'SyncError';
  /** The system's name for it: EIO, ENOSPC … */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}
