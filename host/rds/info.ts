/** The text of /proc/driver/rds/info (seed 003): sessions with other nodes, and sockets. */

export interface SessionRow {
  readonly ip: string;
  readonly state: string;
  /** Receives that are there for all peers, and those that are kept for more. */
  readonly rxBufs: number;
  readonly rxCache: number;
}

export interface SocketRow {
  readonly port: number;
  readonly rxPending: number;
  readonly state: string;
}

function row(...columns: readonly (readonly [string | number, number])[]): string {
  return columns
    .map(([value, width]) => `${value}`.padEnd(width))
    .join('')
    .trimEnd();
}

export function infoText(sessions: readonly SessionRow[], sockets: readonly SocketRow[]): string {
  const session = (ip: string, state: string, bufs: string | number, cache: string | number) =>
    row([ip, 18], [state, 15], [bufs, 10], [cache, 8]);
  const socket = (port: string | number, pending: string | number, state: string) =>
    row([port, 6], [pending, 14], [state, 10]);
  return [
    'Session Info:',
    session('IP', 'State', 'Rx bufs', 'Rx Cache'),
    ...sessions.map(({ ip, state, rxBufs, rxCache }) => session(ip, state, rxBufs, rxCache)),
    '---------------------',
    'Socket Info:',
    socket('Port', 'Rx pending', 'State'),
    ...sockets.map(({ port, rxPending, state }) => socket(port, rxPending, state)),
    '',
  ].join('\n');
}
