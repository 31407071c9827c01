/** Where a receiver of files is. */

export interface ServerAddress {
  /** A name, or an IPv4 or IPv6 address; of a data channel the text of the peer's GID. */
  readonly host: string;
  /** UDP port. Data channels have none, and do not read it. */
  readonly port: number;
}

/** `host:port`, with brackets where they are needed. */
export function formatServerAddress({ host, port }: ServerAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
