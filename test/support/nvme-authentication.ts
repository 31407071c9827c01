/** A raw queue that is connected to a target by CONNECT, and messages of DH-HMAC-CHAP on it. */
import { AccessFlag, nvmeStatusName, type Context } from '../../host/index.js';
import { CNTLID_DYNAMIC } from '../../host/nvme/constants.js';
import { DHCHAP_SECURITY } from '../../host/nvme/dhchap-messages.js';
import { ConnectData } from '../../host/nvme/structures.js';
import { NQN, rawQueue, type Ask } from './nvme-world.js';

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;

export interface RawHost {
  readonly ask: Ask;
  readonly ended: Promise<string>;
  readonly cntlid: number;
  /** In the result of CONNECT: authentication is required. */
  readonly isAsked: boolean;
  close(): void;
  /** The status of an AUTHENTICATION_SEND, by name. */
  send(message: Uint8Array, fields?: Readonly<Record<string, number>>): Promise<string>;
  /** The data of an AUTHENTICATION_RECEIVE, or the name of its status. */
  receive(fields?: Readonly<Record<string, number>>): Promise<Uint8Array | string>;
}

export async function rawHost(
  host: Context,
  hostnqn: string,
  { qid = 0, cntlid = CNTLID_DYNAMIC, nqn = NQN, address = undefined as string | undefined } = {},
): Promise<RawHost> {
  const { ask, ended, queue, pd } = await rawQueue(host, qid, undefined, 7, address);
  const buffer = host.alloc(4096);
  const mr = pd.regMr(buffer, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
  const at = (length: number) =>
    ({ kind: 'keyed', address: mr.addr, length, key: mr.rkey, invalidate: false }) as const;
  ConnectData.build({ hostid: new Uint8Array(16), hostnqn, subnqn: nqn, cntlid }, buffer);
  const connected = await ask('CONNECT', { qid, sqsize: 7 }, { sgl: at(1024) });
  if (connected.status !== 0) throw new Error(nvmeStatusName(connected.status));
  return {
    ask,
    ended,
    cntlid: Number(connected.result & 0xffffn),
    isAsked: (connected.result & (1n << 17n)) !== 0n,
    close: () => queue.close('enough'),
    async send(message, fields = {}) {
      buffer.set(message);
      const { length } = message;
      const values = { ...DHCHAP_SECURITY, length, ...fields };
      const { status } = await ask('AUTHENTICATION_SEND', values, { sgl: at(length) });
      return nvmeStatusName(status);
    },
    async receive(fields = {}) {
      buffer.fill(0);
      const values = { ...DHCHAP_SECURITY, length: 4096, ...fields };
      const { status } = await ask('AUTHENTICATION_RECEIVE', values, { sgl: at(values.length) });
      return status === 0 ? buffer.slice() : nvmeStatusName(status);
    },
  };
}
