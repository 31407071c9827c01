/**
 * A host's association with a controller: its admin queue, and I/O queues one by one (Fabrics 1.1
 * section 1.5.2). Commands of the admin queue go one after the other through one buffer.
 */
import { AccessFlag } from '#build/abi.js';
import { watchLimits } from '../base/wait-limits.js';
import type { AuthOptions } from '../cm/auth-option.js';
import { ConnectError } from '../cm/connect-error.js';
import { connect, type RdmaConnection } from '../cm/connect.js';
import type { CancelTimer } from '../device/clock.js';
import { RefusalError } from '../errors/errors.js';
import type { FmrDesc } from '../pool/fmr-desc.js';
import type { FmrPoolUser } from '../pool/fmr-pool.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { isSetUp, type CommandName, type Completion } from './command.js';
import type { FieldsOf, Sgl } from './command.js';
import type { Completions } from './completions.js';
import {
  CNTLID_DYNAMIC,
  CONNECT_AUTHENTICATE,
  CONNECT_SECURE_CHANNEL,
  DISCOVERY_NQN,
  NvmeCns,
  NvmeFeature,
  NvmeLogPage,
  NvmeProperty,
  NvmeRdmaStatus,
  NvmeStatus,
} from './constants.js';
import { DHCHAP_SECURITY } from './dhchap-messages.js';
import { authenticateHost } from './dhchap-host.js';
import type { CheckedSecrets } from './dhchap-options.js';
import { giveBack } from './give-back.js';
import { HostQueue, type HostQueueCounters, type Io } from './host-queue.js';
import { NvmeError } from './nvme-error.js';
import { readNumber } from './structure.js';
import {
  ConnectData,
  DiscoveryEntry,
  DiscoveryHeader,
  IdentifyController,
  IdentifyNamespace,
  RdmaRejectData,
  RdmaRequestData,
} from './structures.js';

export interface AssociationOptions {
  readonly address: string;
  readonly port: number;
  /** Of the device there. */
  readonly udpPort?: number;
  readonly nqn: string;
  readonly hostNqn: string;
  readonly hostId: Uint8Array;
  /** 0: the target does not watch. */
  readonly keepAliveMillis: number;
  readonly ackTimeout?: number;
  /** Of the connections of all queues. */
  readonly auth?: AuthOptions;
  /** Undefined: the host has no secret. */
  readonly dhchap?: (CheckedSecrets & { readonly required: boolean }) | undefined;
  readonly cmResponseTimeout?: number;
  readonly maxCmRetries?: number;
  /** Ends what `connecting` waits for. */
  readonly signal?: AbortSignal | undefined;
  /** It is over. */
  readonly onEnd: (reason: string) => void;
  /** Asynchronous event of the target: type, information, log page. */
  readonly onEvent?: (type: number, info: number, log: number) => void;
}

interface Connecting {
  over(): void;
  /** Ends the association. Returns what to reject with. */
  failed(error: unknown): unknown;
}

const ADMIN_DEPTH = 31;
const DATA_BYTES = 4096;
const CONNECT_BYTES = 1024;
/** Ready, NVM command set, entries of 2^6 and 2^4 bytes. */
const CC_ENABLED = 0x0046_0001n;
const CC_SHUTDOWN_NORMAL = 0x4000n;
const CSTS_READY = 1n;
const CSTS_FATAL = 2n;
const READY_MICROS = 10_000;
/** For the answer to a command that sets a queue up, and those of the admin queue; as Linux. */
const ADMIN_SECONDS = 60;
/** For the answer of a target that this host leaves; as Linux. */
const SHUTDOWN_SECONDS = 5;
const ASYNC_CONFIG_ALL = 0x31f;
const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;
const UNCOUNTED = (): HostQueueCounters => ({
  ...{ submitted: 0, completed: 0, depthWaits: 0, regionWaits: 0, inCapsule: 0 },
  ...{ registrations: 0, remoteInvalidations: 0, localInvalidations: 0 },
});

export interface IoQueueOptions {
  readonly qid: number;
  readonly depth: number;
  readonly user: FmrPoolUser;
  readonly counters: HostQueueCounters;
  readonly ended: (reason: string, unfinished: Io[], regions: FmrDesc[]) => void;
}

export class Association {
  readonly #pd: ProtectionDomain;
  readonly #completions: Completions;
  readonly #options: AssociationOptions;
  readonly #buffer: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #queues = new Set<HostQueue>();
  #admin: HostQueue | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #cancelKeepAlive: CancelTimer = () => {};
  #isEnded = false;
  cntlid = CNTLID_DYNAMIC;
  /** Of the controller, once it is ready. */
  identity = IdentifyController.read(new Uint8Array(IdentifyController.size));

  private constructor(pd: ProtectionDomain, completions: Completions, options: AssociationOptions) {
    this.#pd = pd;
    this.#completions = completions;
    this.#options = options;
    this.#buffer = pd.context.alloc(DATA_BYTES);
    this.#mr = pd.regMr(this.#buffer, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
  }

  /** A controller that is ready. Rejects with NvmeError, ConnectError, RefusalError. */
  static async open(
    pd: ProtectionDomain,
    completions: Completions,
    options: AssociationOptions,
  ): Promise<Association> {
    options.signal?.throwIfAborted();
    const association = new Association(pd, completions, options);
    const connecting = association.connecting();
    try {
      await association.#establish();
      return association;
    } catch (error) {
      throw connecting.failed(error);
    } finally {
      connecting.over();
    }
  }

  /** A part of connecting begins: when it fails the association ends, and so it does by `signal`. */
  connecting(): Connecting {
    const { signal } = this.#options;
    const giveUp = (): void => this.end('connecting was aborted');
    return {
      over: watchLimits(signal ? { signal } : {}, () => new Error(), giveUp),
      failed: (error) => {
        this.end('connecting failed');
        return signal?.aborted ? signal.reason : error;
      },
    };
  }

  /** A connected I/O queue. Rejects as `open`. */
  async ioQueue(options: IoQueueOptions): Promise<HostQueue> {
    const inCapsuleBytes = Math.max(0, this.identity.ioccsz * 16 - 64);
    const queue = new HostQueue({
      ...options,
      pd: this.#pd,
      completions: this.#completions,
      // In-capsule data directly after the command only (ICDOFF 0).
      inCapsuleBytes: this.identity.icdoff === 0 ? inCapsuleBytes : 0,
      ended: (reason, unfinished, regions) => {
        this.#queues.delete(queue);
        // Those that set the queue up are not for the next one.
        const gone = new RefusalError('ECONNRESET', `connect: the queue is gone: ${reason}`);
        for (const { name, reject } of unfinished) if (isSetUp(name)) reject(gone);
        const commands = unfinished.filter(({ name }) => !isSetUp(name));
        options.ended(reason, commands, regions);
        this.end(reason);
      },
    });
    await this.#connectQueue(queue, options.qid);
    return queue;
  }

  /** Number of I/O queues that the target grants. */
  async setQueueCount(wanted: number): Promise<number> {
    const value = (wanted - 1) | ((wanted - 1) << 16);
    const fid = NvmeFeature.NUMBER_OF_QUEUES;
    const { result } = await this.#command('SET_FEATURES', { fid, value });
    return Math.min(Number(result & 0xffffn), Number((result >> 16n) & 0xffffn)) + 1;
  }

  /** Namespaces that are there. */
  async activeNamespaces(): Promise<number[]> {
    const cns = NvmeCns.ACTIVE_NAMESPACES;
    const list = await this.#fetch('IDENTIFY', { cns, nsid: 0 }, DATA_BYTES);
    const found: number[] = [];
    for (let at = 0; at < list.length; at += 4) {
      const nsid = readNumber(list, at, 4);
      if (nsid === 0) break;
      found.push(nsid);
    }
    return found;
  }

  async identifyNamespace(nsid: number): Promise<ReturnType<typeof IdentifyNamespace.read>> {
    const cns = NvmeCns.NAMESPACE;
    return IdentifyNamespace.read(await this.#fetch('IDENTIFY', { cns, nsid }, DATA_BYTES));
  }

  /** Of a discovery controller: all that it knows. */
  async discoveryLog(): Promise<ReturnType<typeof DiscoveryEntry.read>[]> {
    const page = (at: number): Promise<Uint8Array> =>
      this.#fetch(
        'GET_LOG_PAGE',
        { lid: NvmeLogPage.DISCOVERY, numdl: 1024 / 4 - 1, numdu: 0, lpo: BigInt(at) },
        1024,
      );
    const { numrec } = DiscoveryHeader.read(await page(0));
    const found = [];
    for (let index = 0; index < Math.min(Number(numrec), 1024); index++) {
      found.push(DiscoveryEntry.read(await page(1024 * (index + 1))));
    }
    return found;
  }

  /** Says goodbye, and ends. */
  async shutdown(): Promise<void> {
    if (this.#isEnded) return;
    const { clock } = this.#pd.context.device;
    const end = (): void => this.end('it was closed');
    const cancel = clock.at(clock.now() + SHUTDOWN_SECONDS * 1e6, end);
    await this.#propertySet(NvmeProperty.CC, CC_ENABLED | CC_SHUTDOWN_NORMAL).catch(() => {});
    cancel();
    end();
  }

  /** Ends, once: all queues. */
  end(reason: string): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#cancelKeepAlive();
    for (const queue of [...this.#queues]) queue.close(reason);
    giveBack(this.#mr, this.#buffer);
    this.#options.onEnd(reason);
  }

  async #establish(): Promise<void> {
    const { nqn, keepAliveMillis } = this.#options;
    const admin = new HostQueue({
      pd: this.#pd,
      completions: this.#completions,
      qid: 0,
      depth: ADMIN_DEPTH,
      inCapsuleBytes: 0,
      user: undefined,
      counters: UNCOUNTED(),
      ended: (reason, unfinished) => {
        this.#queues.delete(admin);
        const gone = new RefusalError('ECONNRESET', `connect: the controller is gone: ${reason}`);
        for (const { reject } of unfinished) reject(gone);
        this.end(reason);
      },
    });
    this.#admin = admin;
    await this.#connectQueue(admin, 0);
    await this.#propertyGet(NvmeProperty.CAP, true);
    await this.#propertySet(NvmeProperty.CC, CC_ENABLED);
    const { clock } = this.#pd.context.device;
    const giveUp = clock.now() + 10e6;
    for (;;) {
      const status = await this.#propertyGet(NvmeProperty.CSTS, false);
      if ((status & CSTS_FATAL) !== 0n)
        throw new RefusalError('EIO', 'connect: the controller has failed; restart the target');
      if ((status & CSTS_READY) !== 0n) break;
      if (clock.now() > giveUp)
        throw new RefusalError(
          'ETIMEDOUT',
          'connect: the controller is not ready after 10 s; restart the target',
        );
      await new Promise<void>((done) => clock.at(clock.now() + READY_MICROS, done));
    }
    const cns = NvmeCns.CONTROLLER;
    const page = await this.#fetch('IDENTIFY', { cns }, DATA_BYTES);
    this.identity = IdentifyController.read(page);
    if (keepAliveMillis > 0) this.#keepAlive();
    if (nqn === DISCOVERY_NQN) return;
    if ((this.identity.sgls & 4) === 0) {
      throw new RefusalError(
        'EPROTO',
        'connect: the controller knows no keyed SGLs; use an RDMA target',
      );
    }
    const fid = NvmeFeature.ASYNC_EVENT_CONFIG;
    const value = ASYNC_CONFIG_ALL & (this.identity.oaes | 0x1f);
    await this.#command('SET_FEATURES', { fid, value }).catch((error: unknown) => {
      // A target without event requests serves all the same.
      if (!(error instanceof NvmeError)) throw error;
    });
    this.#awaitEvent();
  }

  async #connectQueue(queue: HostQueue, qid: number): Promise<void> {
    const { address, port, udpPort, ackTimeout, cmResponseTimeout, maxCmRetries } = this.#options;
    const { auth, signal } = this.#options;
    const { cq } = this.#completions;
    let connection: RdmaConnection;
    try {
      connection = await connect(
        { address, port },
        {
          context: this.#pd.context,
          pd: this.#pd,
          qp: { sendCq: cq, recvCq: cq, cap: queue.cap },
          privateData: RdmaRequestData.build({
            recfmt: 0,
            qid,
            hrqsize: queue.entries,
            hsqsize: queue.entries - 1,
            cntlid: qid === 0 ? 0 : this.cntlid,
          }),
          ...(ackTimeout !== undefined && { ackTimeout }),
          ...(cmResponseTimeout !== undefined && { cmResponseTimeout }),
          ...(maxCmRetries !== undefined && { maxCmRetries }),
          ...(udpPort !== undefined && { udpPort }),
          ...(auth !== undefined && { auth }),
          ...(signal !== undefined && { signal }),
        },
        (qp) => queue.prepare(qp),
      );
    } catch (error) {
      queue.close('it was never connected');
      throw explainRefusal(error);
    }
    if (queue.reason !== undefined || this.#isEnded) {
      connection.id.channel.destroy();
      throw new RefusalError(
        'ECONNRESET',
        `connect: the queue is gone: ${queue.reason ?? 'all is over'}`,
      );
    }
    this.#queues.add(queue);
    queue.connected(connection);
    const { hostId: hostid, hostNqn: hostnqn, nqn: subnqn, keepAliveMillis } = this.#options;
    const data = { hostid, hostnqn, subnqn, cntlid: this.cntlid };
    const kato = qid === 0 ? keepAliveMillis : 0;
    const fields = { recfmt: 0, qid, sqsize: queue.entries - 1, cattr: 0, kato };
    const { result } = await this.#exclusive(async () => {
      ConnectData.build(data, this.#buffer);
      return this.#submit(queue, 'CONNECT', fields, this.#sgl(CONNECT_BYTES));
    });
    if (qid === 0) this.cntlid = Number(result & 0xffffn);
    await this.#authenticate(queue, result);
  }

  /**
   * Authenticates a queue if the result of CONNECT requires it. Rejects with RefusalError EACCES,
   * EOPNOTSUPP, EPROTO; NvmeError.
   */
  async #authenticate(queue: HostQueue, result: bigint): Promise<void> {
    const { dhchap, hostNqn, nqn: subNqn } = this.#options;
    if ((result & CONNECT_SECURE_CHANNEL) !== 0n) {
      throw new RefusalError(
        'EOPNOTSUPP',
        'connect: the target asks for a secure channel (TLS); switch it off there',
      );
    }
    if ((result & CONNECT_AUTHENTICATE) === 0n) {
      if (dhchap?.required !== true) return;
      const rule = 'the target does not ask for authentication, and dhchap requires it';
      throw new RefusalError('EACCES', `connect: ${rule}; give the target this host's secret`);
    }
    if (!dhchap) {
      const remedy = 'set dhchap: { secret } to the secret that the target has for it';
      throw new RefusalError(
        'EACCES',
        `connect: the target asks ${hostNqn} for authentication: ${remedy}`,
      );
    }
    const fields = (length: number): FieldsOf<'AUTHENTICATION_SEND'> => ({
      ...DHCHAP_SECURITY,
      length,
    });
    const transport = {
      send: (message: Uint8Array): Promise<void> =>
        this.#exclusive(async () => {
          this.#buffer.set(message);
          const { length } = message;
          await this.#submit(queue, 'AUTHENTICATION_SEND', fields(length), this.#sgl(length));
        }),
      receive: (): Promise<Uint8Array> =>
        this.#exclusive(async () => {
          this.#buffer.fill(0);
          const sgl = this.#sgl(DATA_BYTES);
          await this.#submit(queue, 'AUTHENTICATION_RECEIVE', fields(DATA_BYTES), sgl);
          return this.#buffer.slice();
        }),
    };
    await authenticateHost(transport, { ...dhchap, hostNqn, subNqn }).catch((error: unknown) => {
      throw explainEnd(error, hostNqn);
    });
  }

  /** Sends a keep alive twice per KATO; a target that is silent for a KATO counts as gone. */
  #keepAlive(): void {
    const { clock } = this.#pd.context.device;
    const period = (this.#options.keepAliveMillis * 1000) / 2;
    let unanswered = 0;
    const tick = (): void => {
      if (this.#isEnded) return;
      if (unanswered === 2) return this.end('the target does not answer');
      unanswered++;
      const answered = (): void => {
        unanswered = 0;
      };
      this.#submit(this.#admin!, 'KEEP_ALIVE', {}, { kind: 'none' }).then(answered, () => {});
      this.#cancelKeepAlive = clock.at(clock.now() + period, tick);
    };
    this.#cancelKeepAlive = clock.at(clock.now() + period, tick);
  }

  #awaitEvent(): void {
    this.#submit(this.#admin!, 'ASYNC_EVENT_REQUEST', {}, { kind: 'none' }, true).then(
      ({ result }) => {
        const [type, info] = [Number(result & 7n), Number((result >> 8n) & 255n)];
        const log = Number((result >> 16n) & 255n);
        this.#options.onEvent?.(type, info, log);
        // Reading the log page arms the next event.
        this.#fetch('GET_LOG_PAGE', { lid: log, numdl: 512 / 4 - 1 }, 512).catch(() => {});
        if (!this.#isEnded) this.#awaitEvent();
      },
      () => {},
    );
  }

  #sgl(length: number): Sgl {
    const { addr, rkey } = this.#mr;
    return { kind: 'keyed', address: addr, length, key: rkey, invalidate: false };
  }

  /** Serializes the users of the buffer. */
  #exclusive<T>(use: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(use);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Rejects with NvmeError unless the status is SUCCESS; RefusalError ECONNRESET. */
  async #submit(
    queue: HostQueue,
    name: CommandName,
    fields: Readonly<Record<string, number | bigint>>,
    sgl: Sgl,
    isUntimed = false,
  ): Promise<Completion> {
    const { clock } = this.#pd.context.device;
    const late = (): void => this.end(`${name} was not answered in ${ADMIN_SECONDS} s`);
    const cancel = isUntimed ? () => {} : clock.at(clock.now() + ADMIN_SECONDS * 1e6, late);
    const completion = await new Promise<Completion>((resolve, reject) =>
      queue.submit({ name, fields, sgl, isUntimed, resolve, reject }),
    ).finally(cancel);
    if (completion.status !== NvmeStatus.SUCCESS) throw new NvmeError(name, completion.status);
    return completion;
  }

  #command<Name extends CommandName>(
    name: Name,
    fields: Partial<FieldsOf<Name>> & { readonly nsid?: number },
  ): Promise<Completion> {
    const plain = fields as Readonly<Record<string, number | bigint>>;
    return this.#submit(this.#admin!, name, plain, { kind: 'none' });
  }

  /** A copy of what the target puts into the buffer. */
  #fetch<Name extends CommandName>(
    name: Name,
    fields: Partial<FieldsOf<Name>> & { readonly nsid?: number },
    length: number,
  ): Promise<Uint8Array> {
    return this.#exclusive(async () => {
      this.#buffer.fill(0);
      const plain = fields as Readonly<Record<string, number | bigint>>;
      await this.#submit(this.#admin!, name, plain, this.#sgl(length));
      return this.#buffer.slice(0, length);
    });
  }

  async #propertyGet(ofst: number, isWide: boolean): Promise<bigint> {
    return (await this.#command('PROPERTY_GET', { ofst, attrib: isWide ? 1 : 0 })).result;
  }

  async #propertySet(ofst: number, value: bigint): Promise<void> {
    await this.#command('PROPERTY_SET', { ofst, attrib: 0, value });
  }
}

/** Linux ends a connection together with its refusal, which may be lost then. */
function explainEnd(error: unknown, hostNqn: string): unknown {
  if (!(error instanceof RefusalError) || error.code !== 'ECONNRESET') return error;
  const why = `the target disconnected while ${hostNqn} authenticated: it refuses this host`;
  const remedy = 'give both sides the same secret';
  return new RefusalError('EACCES', `connect: ${why}, or it has ended; ${remedy}`, {
    cause: error,
  });
}

/** Error with the name of the status that a target's REJ carries. */
function explainRefusal(error: unknown): unknown {
  if (!(error instanceof ConnectError) || error.privateData.length < RdmaRejectData.size) {
    return error;
  }
  const { recfmt, sts } = RdmaRejectData.read(error.privateData);
  const found = Object.entries(NvmeRdmaStatus).find(([, value]) => value === sts);
  if (recfmt !== 0 || !found) return error;
  const remedy =
    found[1] === NvmeRdmaStatus.NO_RESOURCES
      ? '; close other volumes, or raise queuesPerSource and queuesMax of the target'
      : '';
  return new RefusalError('ECONNREFUSED', `connect: the target refuses: ${found[0]}${remedy}`, {
    cause: error,
  });
}
