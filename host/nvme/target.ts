/**
 * An NVM subsystem with one namespace, served over RDMA: `listen`, `connect` by any host,
 * controllers and queues. Its limits are fixed at open; a host beyond them is refused with the
 * status of the specification.
 */
import { AccessFlag } from '#build/abi.js';
import { listen, type RdmaConnection, type RdmaListener, type RdmaRequest } from '../cm/connect.js';
import type { CancelTimer } from '../device/clock.js';
import { RefusalError } from '../errors/errors.js';
import { sourceOf } from '../link/source-shares.js';
import type { Context } from '../verbs/context.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { AdminCommands, type NamespaceIdentity, type Subsystem } from './admin.js';
import type { Command, CommandOf } from './command.js';
import { Completions } from './completions.js';
import {
  CNTLID_DYNAMIC,
  CONNECT_AUTHENTICATE,
  DISCOVERY_NQN,
  DO_NOT_RETRY,
  NVME_RDMA_PORT,
  NvmeRdmaStatus,
  NvmeStatus,
  SQE_BYTES,
} from './constants.js';
import type { Controller } from './controller.js';
import { namesOf } from './identity.js';
import { IoCommands } from './io.js';
import { Staging } from './staging.js';
import {
  MAX_TRANSFER_SHIFT,
  PAGE_BYTES,
  checkTargetOptions,
  type NvmeTargetEvent,
  type NvmeTargetOptions,
  type NvmeTargetStats,
} from './target-options.js';
import { Controllers } from './controllers.js';
import { checkTargetDhchap } from './dhchap-options.js';
import { DHCHAP_BYTES_MAX } from './dhchap-messages.js';
import { queueRequestOf } from './queue-request.js';
import { isAuthenticationCommand, type QueueAuthentication } from './queue-authentication.js';
import { TargetAuthenticator } from './target-authenticator.js';
import { ConnectData, RdmaAcceptData, RdmaRejectData } from './structures.js';
import { TargetQueue, type NvmeRequest } from './target-queue.js';

const ADMIN_BUFFERS = 8;
const ADMIN_BUFFER_BYTES = 16384;
const CONNECT_BYTES = 1024;
/** Data of commands that set a queue up are read into the memory of their own capsules. */
const SET_UP_BYTES = Math.max(CONNECT_BYTES, DHCHAP_BYTES_MAX);
const CONNECT_MILLIS = 3000;
/**
 * Half of the queues of one source, and this number at least, may be not connected, or not
 * authenticated: a host that connects many volumes at once is no attacker.
 */
const SILENT_PER_SOURCE = 16;
/** Connections to a discovery controller are short. */
const DISCOVERY_KATO_MILLIS = 60_000;
/**
 * Invalid parameter of Connect (Fabrics 1.1 figure 19): set if it is in the data, clear if it is in
 * the command.
 */
const IN_DATA = 1n << 16n;
/** Critical warning: media; a namespace changed. */
const EVENT_HEALTH = { type: 1, info: 0, log: 2 };
const FIRMWARE = '1.0';

interface QueueOrigin {
  readonly peer: string;
  controller: Controller | undefined;
  /** Undefined: the host needs no authentication. */
  authentication: QueueAuthentication | undefined;
  /** Its controller has it. */
  isReady: boolean;
  /** Of the time that it has to say Connect. */
  cancel: CancelTimer;
}

/** An NVMe namespace over RDMA, for Linux’s initiator and ours. */
export class NvmeTarget {
  readonly nqn: string;
  readonly context: Context;
  readonly #options: NvmeTargetOptions;
  readonly #pd: ProtectionDomain;
  readonly #completions: Completions;
  readonly #adminStaging: Staging;
  readonly #staging: Staging | undefined;
  readonly #mr: MemoryRegion | undefined;
  readonly #admin: AdminCommands;
  readonly #io: IoCommands;
  readonly #controllers: Controllers;
  readonly #queues = new Map<TargetQueue, QueueOrigin>();
  readonly #maxTransferBytes: number;
  readonly #inCapsuleBytes: number;
  #listener: RdmaListener | undefined;
  readonly #authenticator: TargetAuthenticator | undefined;
  #refused = 0;
  /** Connections that hosts are making. */
  readonly #admissions = new Set<Promise<void>>();
  #isClosed = false;
  /** Ends admissions: a host may leave its REQ for half a minute. */
  readonly #ending = new AbortController();

  private constructor(context: Context, options: NvmeTargetOptions) {
    const { store, nqn = 'nqn.2026-01.dev.verbena:target', blockBytes = 512 } = options;
    this.context = context;
    this.nqn = nqn;
    this.#options = options;
    this.#controllers = new Controllers(options.controllersMax ?? 64);
    if (options.dhchap !== undefined) {
      const dhchap = checkTargetDhchap(options.dhchap);
      this.#authenticator = new TargetAuthenticator(dhchap, context.device.clock);
    }
    this.#inCapsuleBytes = options.inCapsuleBytes ?? PAGE_BYTES;
    this.#maxTransferBytes = PAGE_BYTES << MAX_TRANSFER_SHIFT;
    const blockShift = Math.log2(blockBytes);
    this.#pd = context.allocPd();
    this.#completions = new Completions(context);
    this.#adminStaging = new Staging(this.#pd, ADMIN_BUFFERS, ADMIN_BUFFER_BYTES);
    if (store.memory) this.#mr = this.#pd.regMr(store.memory, AccessFlag.LOCAL_WRITE);
    else {
      const count = Math.floor((options.dataBytes ?? 2 ** 24) / this.#maxTransferBytes);
      this.#staging = new Staging(this.#pd, Math.max(1, count), this.#maxTransferBytes);
    }
    this.#io = new IoCommands({
      store,
      blockShift,
      maxTransferBytes: this.#maxTransferBytes,
      mr: this.#mr,
      staging: this.#staging,
      lists: this.#adminStaging,
      clock: context.device.clock,
      delayMicros: options.delayMicros,
      onFailure: (error) => this.#storeFailed(error),
    });
    this.#admin = new AdminCommands(this.#subsystem(blockShift), this.#adminStaging);
  }

  /**
   * Serves a store. `context` stays the caller's. Rejects with MisuseError; RefusalError ENOMEM,
   * EADDRINUSE.
   */
  static async open(context: Context, options: NvmeTargetOptions): Promise<NvmeTarget> {
    checkTargetOptions(options);
    const target = new NvmeTarget(context, options);
    try {
      const address = context.local.gid.toString();
      const port = options.port ?? NVME_RDMA_PORT;
      const how = { context, ...(options.auth !== undefined && { auth: options.auth }) };
      target.#listener = await listen({ address, port }, how);
    } catch (error) {
      await target.#end();
      throw error;
    }
    void target.#accept();
    return target;
  }

  /** The port that it listens to. */
  get port(): number {
    return this.#listener!.port;
  }

  get stats(): NvmeTargetStats {
    return {
      ...this.#io.counters,
      controllers: this.#controllers.size,
      queues: this.#queues.size,
      refused: this.#refused,
      dataWaits: this.#staging?.waits ?? 0,
      ...(this.#authenticator?.counters ?? { authenticated: 0, authenticationFailures: 0 }),
    };
  }

  /** Ends all connections: hosts may come again. */
  disconnectAll(reason: string): void {
    for (const controller of this.#controllers.all()) controller.close(reason);
    for (const queue of [...this.#queues.keys()]) queue.close(reason);
  }

  /** Ends all connections, and closes the store: what was written is durable then, if it can be. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#listener?.close();
    this.#ending.abort();
    this.disconnectAll('the target is closed');
    // Their queue pairs use what ends now.
    await Promise.all(this.#admissions);
    await this.#end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #end(): Promise<void> {
    this.#completions.close();
    this.#adminStaging.close();
    this.#staging?.close();
    const { store } = this.#options;
    if (this.#mr && !this.context.device.closed) this.#mr.dereg();
    await store.close();
    if (!this.context.device.closed) this.#pd.dealloc();
  }

  #subsystem(blockShift: number): Subsystem {
    const { store, serial, model = 'Verbena' } = this.#options;
    const names = namesOf(this.nqn);
    const namespace: NamespaceIdentity = {
      blocks: BigInt(Math.floor(store.length / 2 ** blockShift)),
      blockShift,
      ...names,
    };
    const io = this.#io;
    const discovered = (): Subsystem['discovered'] => this.#discovered();
    return {
      serial: serial ?? names.serial,
      model,
      firmware: FIRMWARE,
      namespace,
      isVolatile: store.isVolatile,
      inCapsuleBytes: this.#inCapsuleBytes,
      mdts: MAX_TRANSFER_SHIFT,
      counters: io.counters,
      get discovered() {
        return discovered();
      },
      get failure() {
        return io.failure;
      },
    };
  }

  #discovered(): Subsystem['discovered'] {
    const { gid } = this.context.local;
    const address = { traddr: gid.toString(), isIpv4: gid.isIpv4, trsvcid: `${this.port}` };
    return [{ ...address, subnqn: this.nqn, portid: 1, asqsz: 32 }];
  }

  #storeFailed(error: Error): void {
    const noHost = { peer: '', hostNqn: '', cntlid: 0, qid: 0 };
    this.#event({ kind: 'failed', ...noHost, reason: error.message });
    for (const controller of this.#controllers.all()) controller.raise(EVENT_HEALTH);
  }

  #event(event: NvmeTargetEvent): void {
    try {
      this.#options.onEvent?.(event);
    } catch {
      // Exceptions of onEvent are ignored.
    }
  }

  async #accept(): Promise<void> {
    for await (const request of this.#listener!) {
      // Each for itself: one that is slow keeps no other waiting.
      const admission = this.#admit(request)
        .catch((error: unknown) => this.#refuse(request, error))
        .finally(() => this.#admissions.delete(admission));
      this.#admissions.add(admission);
    }
  }

  #refuse(request: RdmaRequest, error: unknown): void {
    this.#refused++;
    const peer = request.id.getPeerAddr()?.address ?? '';
    const reason = (error as Error).message;
    this.#event({ kind: 'refused', peer, hostNqn: '', cntlid: 0, qid: 0, reason });
  }

  async #admit(request: RdmaRequest): Promise<void> {
    const { privateData } = request;
    const reject = (sts: number, why: string): never => {
      request.reject(RdmaRejectData.build({ recfmt: 0, sts }));
      throw new RefusalError('ECONNREFUSED', why);
    };
    const asked = queueRequestOf(privateData, this.#queueDepthMax);
    if ('sts' in asked) return reject(asked.sts, asked.why);
    const { queuesMax = 256, ioQueuesMax = 8 } = this.#options;
    const { queuesPerSource = Math.max(Math.ceil(queuesMax / 4), ioQueuesMax + 1) } = this.#options;
    if (this.#queues.size >= queuesMax) {
      reject(NvmeRdmaStatus.NO_RESOURCES, `all ${queuesMax} queues are taken`);
    }
    const own = this.#queuesOf(request.peer.address);
    const silent = own.filter(({ isReady }) => !isReady).length;
    const silentMax = Math.max(SILENT_PER_SOURCE, queuesPerSource / 2);
    if (own.length >= queuesPerSource || silent >= silentMax) {
      const sentence = `its address has ${own.length} queues, ${silent} of them without a Connect`;
      reject(NvmeRdmaStatus.NO_RESOURCES, sentence);
    }
    const failures = this.#authenticator?.reasonFor(request.peer.address);
    if (failures !== undefined) reject(NvmeRdmaStatus.NO_RESOURCES, failures);
    let queue: TargetQueue;
    try {
      queue = this.#makeQueue(asked.qid, asked.entries);
    } catch (error) {
      return reject(NvmeRdmaStatus.NO_RESOURCES, (error as Error).message);
    }
    const { address } = request.peer;
    const origin: QueueOrigin = {
      ...{ peer: address, controller: undefined, authentication: undefined, isReady: false },
      cancel: () => {},
    };
    this.#queues.set(queue, origin);
    const { cq } = this.#completions;
    let connection: RdmaConnection;
    try {
      connection = await request.accept(
        {
          pd: this.#pd,
          qp: { sendCq: cq, recvCq: cq, cap: queue.cap },
          privateData: RdmaAcceptData.build({ recfmt: 0, crqsize: queue.entries }),
          signal: this.#ending.signal,
          ...(this.#options.ackTimeout !== undefined && { ackTimeout: this.#options.ackTimeout }),
        },
        (qp) => queue.prepare(qp),
      );
    } catch (error) {
      queue.close(`the connection failed: ${(error as Error).message}`);
      throw error;
    }
    queue.connected(connection);
    const { clock } = this.context.device;
    const { connectMillis = CONNECT_MILLIS } = this.#options;
    if (queue.reason !== undefined || origin.controller) return;
    origin.cancel = clock.at(clock.now() + connectMillis * 1000, () =>
      queue.close('no Connect came'),
    );
  }

  #queuesOf(address: string): QueueOrigin[] {
    const source = sourceOf(address);
    return [...this.#queues.values()].filter(({ peer }) => sourceOf(peer) === source);
  }

  get #queueDepthMax(): number {
    return this.#options.queueDepthMax ?? 128;
  }

  #makeQueue(qid: number, entries: number): TargetQueue {
    const inCapsule = qid === 0 ? SET_UP_BYTES : Math.max(SET_UP_BYTES, this.#inCapsuleBytes);
    const bytes = SQE_BYTES + inCapsule;
    return new TargetQueue(this.#pd, this.#completions, qid, entries, bytes, {
      request: (request) => this.#request(request),
      ended: (queue, reason) => this.#ended(queue, reason),
    });
  }

  #request(request: NvmeRequest): void {
    const { queue } = request;
    const { controller, authentication } = this.#queues.get(queue)!;
    const command = request.command as Command;
    const failed = (error: unknown): void => {
      if (error instanceof RefusalError && error.code === 'ECONNRESET') return;
      queue.close(`unexpected: ${(error as Error).message}`);
    };
    if (command.name === 'CONNECT') {
      void this.#connect(request, command).catch(failed);
      return;
    }
    if (isAuthenticationCommand(command) && authentication) {
      void authentication.serve(request, command).catch(failed);
      return;
    }
    if (authentication?.isAuthenticated === false) {
      const status = NvmeStatus.AUTHENTICATION_REQUIRED | DO_NOT_RETRY;
      queue.answer(request, { status });
      return;
    }
    if (!controller || isAuthenticationCommand(command)) {
      queue.answer(request, { status: NvmeStatus.COMMAND_SEQUENCE_ERROR | DO_NOT_RETRY });
      return;
    }
    controller.heard();
    if (queue.qid !== 0) return this.#io.serve(request);
    this.#admin.serve(controller, request, () => {
      for (const [qid, other] of [...controller.queues]) {
        if (qid !== 0) other.close('the controller is disabled');
      }
    });
  }

  /** CONNECT: its data first. */
  async #connect(request: NvmeRequest, command: CommandOf<'CONNECT'>): Promise<void> {
    const { queue } = request;
    const origin = this.#queues.get(queue)!;
    const refuse = (status: number, reason: string, result = 0n): void => {
      const { peer } = origin;
      queue.answer(request, { status: status | DO_NOT_RETRY, result });
      const at = { cntlid: 0, qid: queue.qid };
      this.#event({ kind: 'refused', peer, hostNqn: '', ...at, reason });
      this.#refused++;
    };
    if (origin.controller) {
      return refuse(NvmeStatus.COMMAND_SEQUENCE_ERROR, 'the queue is connected already');
    }
    const bytes = await queue.fetch(request, CONNECT_BYTES);
    if (typeof bytes === 'number') {
      return refuse(bytes, 'Connect has 1024 bytes of data, outside of the capsule or all inside');
    }
    const data = ConnectData.read(bytes);
    // It may have been connected while its data came.
    if (origin.controller) {
      return refuse(NvmeStatus.COMMAND_SEQUENCE_ERROR, 'the queue is connected already');
    }
    const { recfmt, qid, sqsize, kato } = command;
    const { hostnqn, subnqn, hostid, cntlid } = data;
    const invalid = (reason: string, at: number, place = 0n): void =>
      refuse(NvmeStatus.CONNECT_INVALID_PARAMETERS, reason, BigInt(at) | place);
    if (recfmt !== 0) return refuse(NvmeStatus.CONNECT_INCOMPATIBLE_FORMAT, `format ${recfmt}`);
    if (qid !== queue.qid) return invalid(`queue ${qid}, not ${queue.qid}`, 42);
    if (sqsize === 0 || sqsize >= queue.entries) return invalid(`${sqsize + 1} entries`, 44);
    if (subnqn !== this.nqn && (subnqn !== DISCOVERY_NQN || qid !== 0)) {
      return invalid(`there is no subsystem "${subnqn}"`, 256, IN_DATA);
    }
    if (!hostnqn.startsWith('nqn.')) return invalid('the host has no name', 512, IN_DATA);
    const { hosts } = this.#options;
    if (hosts && subnqn === this.nqn && !hosts.includes(hostnqn)) {
      return refuse(NvmeStatus.CONNECT_INVALID_HOST, `${hostnqn} is not allowed`);
    }
    const authenticator = subnqn === this.nqn ? this.#authenticator : undefined;
    if (authenticator?.knows(hostnqn) === false) {
      return refuse(NvmeStatus.CONNECT_INVALID_HOST, `${hostnqn} has no secret here`);
    }
    let controller: Controller | undefined;
    if (qid === 0) {
      if (cntlid !== CNTLID_DYNAMIC) return invalid(`controller ${cntlid}`, 16, IN_DATA);
      controller = this.#makeController(subnqn, hostnqn, hostid, kato);
      if (!controller) return refuse(NvmeStatus.CONNECT_CONTROLLER_BUSY, 'too many controllers');
    } else {
      controller = this.#controllers.get(cntlid);
      if (controller?.hostNqn !== hostnqn || controller.subNqn !== subnqn) {
        return invalid(`there is no controller ${cntlid}`, 16, IN_DATA);
      }
      if (!controller.isEnabled || controller.isDiscovery) {
        return refuse(NvmeStatus.COMMAND_SEQUENCE_ERROR, 'the controller is not enabled');
      }
      if (qid > controller.ioQueuesGranted) return invalid(`queue ${qid} was not granted`, 42);
      if (controller.queues.has(qid)) {
        return refuse(NvmeStatus.COMMAND_SEQUENCE_ERROR, `queue ${qid} is connected already`);
      }
    }
    queue.sqsize = sqsize;
    origin.controller = controller;
    origin.cancel();
    if (authenticator) this.#authenticate(authenticator, queue, origin, controller);
    else this.#join(queue, origin, controller);
    const authenticate = authenticator ? CONNECT_AUTHENTICATE : 0n;
    queue.answer(request, { result: BigInt(controller.cntlid) | authenticate });
  }

  #authenticate(
    authenticator: TargetAuthenticator,
    queue: TargetQueue,
    origin: QueueOrigin,
    controller: Controller,
  ): void {
    const { peer } = origin;
    const { hostNqn, subNqn, cntlid } = controller;
    origin.authentication = authenticator.begin({
      ...{ queue, peer, hostNqn, subNqn },
      authenticated: () => this.#join(queue, origin, controller),
      failed: (reason) => {
        this.#event({ kind: 'refused', peer, hostNqn, cntlid, qid: queue.qid, reason });
        this.#refused++;
      },
    });
  }

  /**
   * The queue is its controller's: connected, and authenticated if that is required. Until then it
   * neither takes the number of a queue nor keeps the controller alive.
   */
  #join(queue: TargetQueue, origin: QueueOrigin, controller: Controller): void {
    const { qid } = queue;
    if (this.#controllers.get(controller.cntlid) !== controller) {
      return queue.close('its controller has ended');
    }
    if (controller.queues.has(qid)) return queue.close(`queue ${qid} is connected already`);
    origin.isReady = true;
    controller.queues.set(qid, queue);
    controller.heard();
    const { hostNqn, cntlid } = controller;
    this.#event({ kind: 'connected', peer: origin.peer, hostNqn, cntlid, qid, reason: '' });
  }

  #makeController(
    subNqn: string,
    hostNqn: string,
    hostId: Uint8Array,
    katoMillis: number,
  ): Controller | undefined {
    const { ioQueuesMax = 8 } = this.#options;
    return this.#controllers.make({
      ...{ subNqn, hostNqn, hostId, ioQueuesMax },
      katoMillis: katoMillis || (subNqn === DISCOVERY_NQN ? DISCOVERY_KATO_MILLIS : 0),
      entriesMax: this.#queueDepthMax,
      clock: this.context.device.clock,
    });
  }

  #ended(queue: TargetQueue, reason: string): void {
    const { peer, controller, authentication, isReady, cancel } = this.#queues.get(queue)!;
    cancel();
    authentication?.ended(reason);
    this.#queues.delete(queue);
    if (!controller) return;
    const { hostNqn, cntlid } = controller;
    if (isReady) {
      this.#event({ kind: 'disconnected', peer, hostNqn, cntlid, qid: queue.qid, reason });
      controller.queues.delete(queue.qid);
    }
    if (queue.qid !== 0) return;
    // Without its admin queue there is no controller.
    this.#controllers.remove(cntlid);
    controller.close(reason);
  }
}
