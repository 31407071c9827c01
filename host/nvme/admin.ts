/** Handlers of the admin queue of a controller: Identify, log pages, features, and the rest. */
import type { Lease, Staging } from './staging.js';
import { ASYNC_EVENTS_MAX, invalidField, type Controller } from './controller.js';
import type { Command, CommandOf } from './command.js';
import {
  DO_NOT_RETRY,
  IDENTIFY_BYTES,
  NSID_ALL,
  NVME_VERSION,
  NvmeAdminOpcode,
  NvmeCns,
  NvmeFeature,
  NvmeLogPage,
  NvmeOpcode,
  NvmeStatus,
  SQE_BYTES,
  CQE_BYTES,
} from './constants.js';
import {
  HealthLog,
  IdentifyController,
  IdentifyNamespace,
  discoveryLog,
  namespaceDescriptors,
  namespaceList,
  type DiscoveredSubsystem,
} from './structures.js';
import { writeNumber } from './structure.js';
import type { Answer, NvmeRequest } from './target-queue.js';

/** The one namespace of the one subsystem. */
export interface NamespaceIdentity {
  readonly blocks: bigint;
  /** log2 of the bytes of a block. */
  readonly blockShift: number;
  readonly nguid: Uint8Array;
  readonly eui64: Uint8Array;
  readonly uuid: Uint8Array;
}

/** Description of a subsystem for Identify and log pages; counters are those of the namespace. */
export interface Subsystem {
  readonly serial: string;
  readonly model: string;
  readonly firmware: string;
  readonly namespace: NamespaceIdentity;
  readonly isVolatile: boolean;
  readonly inCapsuleBytes: number;
  /** log2 of the pages of 4 KiB of the largest transfer. */
  readonly mdts: number;
  readonly discovered: readonly DiscoveredSubsystem[];
  readonly counters: {
    readonly reads: number;
    readonly writes: number;
    readonly blocksRead: number;
    readonly blocksWritten: number;
    readonly mediaErrors: number;
  };
  /** The store has failed: nothing can be written any more. */
  readonly failure: Error | undefined;
}

export const NSID = 1;
const ROOM_TEMPERATURE_KELVIN = 300;
/** Keyed SGLs, and data at offset 0 of a capsule. */
const SGLS = 0x0010_0005;
const OAES_NAMESPACE = 0x100;
/** Traffic based keep alive. */
const CTRATT_TBKAS = 0x40;
const ONCS_DATASET_MANAGEMENT = 0x04;
const ONCS_WRITE_ZEROES = 0x08;
const NIDT = { EUI64: 1, NGUID: 2, UUID: 3 };
/** Effects: supported, and what changes blocks. */
const SUPPORTED = 1;
const CHANGES_BLOCKS = 2;
const THOUSANDS_OF_512 = 512000;

export class AdminCommands {
  readonly #subsystem: Subsystem;
  readonly #staging: Staging;

  constructor(subsystem: Subsystem, staging: Staging) {
    this.#subsystem = subsystem;
    this.#staging = staging;
  }

  /** `closeIoQueues`: the controller is disabled. */
  serve(controller: Controller, request: NvmeRequest, closeIoQueues: () => void): void {
    const command = request.command as Command;
    const say = (answer: Answer | undefined): void => {
      if (answer) request.queue.answer(request, answer);
    };
    const isFabrics = command.name === 'PROPERTY_GET' || command.name === 'PROPERTY_SET';
    if (!isFabrics && !controller.isEnabled) {
      say({ status: NvmeStatus.COMMAND_SEQUENCE_ERROR | DO_NOT_RETRY });
      return;
    }
    switch (command.name) {
      case 'PROPERTY_GET':
        return say(controller.propertyGet(command));
      case 'PROPERTY_SET': {
        const answer = controller.propertySet(command);
        if (answer.disables) closeIoQueues();
        return say(answer);
      }
      case 'KEEP_ALIVE':
        return say(controller.katoMillis === 0 ? invalidKeepAlive() : {});
      case 'ASYNC_EVENT_REQUEST':
        return say(controller.awaitEvent(request));
      case 'ABORT':
        return this.#abort(controller, request, command);
      case 'SET_FEATURES':
        return this.#setFeatures(controller, request, command);
      case 'GET_FEATURES':
        return this.#getFeatures(controller, request, command);
      case 'IDENTIFY':
        return this.#identify(controller, request, command);
      case 'GET_LOG_PAGE':
        return this.#log(controller, request, command);
      default:
        say({ status: NvmeStatus.COMMAND_SEQUENCE_ERROR | DO_NOT_RETRY });
    }
  }

  #abort(controller: Controller, request: NvmeRequest, command: CommandOf<'ABORT'>): void {
    const { queue } = request;
    const found = controller.queues.get(command.sqid)?.find(command.abortCid);
    // Data in flight cannot be recalled: Abort ends waiting event requests only.
    if (found && found !== request && controller.abortEventRequest(found)) {
      found.queue.answer(found, { status: NvmeStatus.ABORT_REQUESTED });
      queue.answer(request, { result: 0n });
    } else queue.answer(request, { result: 1n });
  }

  #setFeatures(
    controller: Controller,
    request: NvmeRequest,
    { fid, sv, value }: CommandOf<'SET_FEATURES'>,
  ): void {
    const { queue } = request;
    if (sv === 1) {
      return queue.answer(request, { status: NvmeStatus.FEATURE_NOT_SAVEABLE | DO_NOT_RETRY });
    }
    switch (fid) {
      case NvmeFeature.NUMBER_OF_QUEUES: {
        if (controller.isDiscovery) return queue.answer(request, invalidField());
        const wanted = Math.min(value & 0xffff, value >>> 16) + 1;
        if (wanted > 0xffff) return queue.answer(request, invalidField());
        controller.ioQueuesGranted = Math.min(wanted, controller.ioQueuesMax);
        return queue.answer(request, { result: this.#queuesGranted(controller) });
      }
      case NvmeFeature.ASYNC_EVENT_CONFIG:
        controller.asyncEventConfig = value;
        return queue.answer(request, { result: BigInt(value) });
      case NvmeFeature.KEEP_ALIVE_TIMER:
        controller.katoMillis = value;
        controller.watch();
        return queue.answer(request, { result: BigInt(value) });
      case NvmeFeature.ARBITRATION:
      case NvmeFeature.POWER_MANAGEMENT:
      case NvmeFeature.TEMPERATURE_THRESHOLD:
      case NvmeFeature.ERROR_RECOVERY:
      case NvmeFeature.WRITE_ATOMICITY:
      case NvmeFeature.VOLATILE_WRITE_CACHE:
        return queue.answer(request, { status: NvmeStatus.FEATURE_NOT_CHANGEABLE | DO_NOT_RETRY });
      default:
        return queue.answer(request, invalidField());
    }
  }

  #queuesGranted({ ioQueuesGranted }: Controller): bigint {
    const count = ioQueuesGranted - 1;
    return BigInt(count) | (BigInt(count) << 16n);
  }

  #getFeatures(
    controller: Controller,
    request: NvmeRequest,
    { fid }: CommandOf<'GET_FEATURES'>,
  ): void {
    const { queue } = request;
    switch (fid) {
      case NvmeFeature.NUMBER_OF_QUEUES:
        if (controller.isDiscovery) return queue.answer(request, invalidField());
        if (controller.ioQueuesGranted === 0) controller.ioQueuesGranted = controller.ioQueuesMax;
        return queue.answer(request, { result: this.#queuesGranted(controller) });
      case NvmeFeature.ASYNC_EVENT_CONFIG:
        return queue.answer(request, { result: BigInt(controller.asyncEventConfig) });
      case NvmeFeature.KEEP_ALIVE_TIMER:
        return queue.answer(request, { result: BigInt(controller.katoMillis) });
      case NvmeFeature.VOLATILE_WRITE_CACHE:
        return queue.answer(request, { result: this.#subsystem.isVolatile ? 1n : 0n });
      case NvmeFeature.ARBITRATION:
      case NvmeFeature.POWER_MANAGEMENT:
      case NvmeFeature.TEMPERATURE_THRESHOLD:
      case NvmeFeature.ERROR_RECOVERY:
      case NvmeFeature.WRITE_ATOMICITY:
        return queue.answer(request, { result: 0n });
      case NvmeFeature.HOST_IDENTIFIER:
        return this.#send(request, controller.hostId, 16);
      default:
        return queue.answer(request, invalidField());
    }
  }

  #identify(controller: Controller, request: NvmeRequest, command: CommandOf<'IDENTIFY'>): void {
    const { queue } = request;
    const { nsid, cns, csi } = command;
    const invalid = (status: number): void =>
      queue.answer(request, { status: status | DO_NOT_RETRY });
    if (cns === NvmeCns.CONTROLLER) {
      return this.#send(request, this.#identifyController(controller), IDENTIFY_BYTES);
    }
    if (controller.isDiscovery) return invalid(NvmeStatus.INVALID_FIELD);
    switch (cns) {
      case NvmeCns.NAMESPACE: {
        const isAll = nsid === NSID_ALL;
        if (nsid !== NSID && !isAll) return invalid(NvmeStatus.INVALID_NAMESPACE);
        return this.#send(request, this.#identifyNamespace(isAll), IDENTIFY_BYTES);
      }
      case NvmeCns.ACTIVE_NAMESPACES:
        if (nsid >= NSID_ALL - 1) return invalid(NvmeStatus.INVALID_NAMESPACE);
        return this.#send(request, namespaceList([NSID], nsid), IDENTIFY_BYTES);
      case NvmeCns.NAMESPACE_DESCRIPTORS: {
        if (nsid !== NSID) return invalid(NvmeStatus.INVALID_NAMESPACE);
        const { nguid, eui64, uuid } = this.#subsystem.namespace;
        const names = namespaceDescriptors([
          { nidt: NIDT.EUI64, nid: eui64 },
          { nidt: NIDT.NGUID, nid: nguid },
          { nidt: NIDT.UUID, nid: uuid },
        ]);
        return this.#send(request, names, IDENTIFY_BYTES);
      }
      case NvmeCns.COMMAND_SET_CONTROLLER:
        if (csi !== 0) return invalid(NvmeStatus.INVALID_FIELD);
        // No limits besides MDTS.
        return this.#send(request, new Uint8Array(IDENTIFY_BYTES), IDENTIFY_BYTES);
      default:
        return invalid(NvmeStatus.INVALID_FIELD);
    }
  }

  #identifyController(controller: Controller): Uint8Array {
    const { serial, model, firmware, isVolatile, inCapsuleBytes, mdts } = this.#subsystem;
    const { isDiscovery, cntlid, subNqn, entriesMax } = controller;
    const common = {
      sn: serial,
      mn: model,
      fr: firmware,
      mdts,
      cntlid,
      ver: NVME_VERSION,
      ctratt: CTRATT_TBKAS,
      cntrltype: isDiscovery ? 2 : 1,
      aerl: ASYNC_EVENTS_MAX - 1,
      // Get Log Page takes an offset, and more than 4 KiB.
      lpa: 0x04,
      kas: 10,
      maxcmd: entriesMax,
      sgls: SGLS,
      subnqn: subNqn,
    };
    if (isDiscovery) return IdentifyController.build(common);
    return IdentifyController.build({
      ...common,
      oaes: OAES_NAMESPACE,
      acl: 3,
      frmw: 0x03,
      lpa: 0x06,
      elpe: 0,
      sqes: 0x66,
      cqes: 0x44,
      nn: 1,
      mnan: 1,
      oncs: ONCS_DATASET_MANAGEMENT | ONCS_WRITE_ZEROES,
      // A flush of all namespaces is one of the only one.
      vwc: isVolatile ? 0x07 : 0x06,
      ioccsz: (SQE_BYTES + inCapsuleBytes) / 16,
      iorcsz: CQE_BYTES / 16,
      msdbd: 1,
    });
  }

  #identifyNamespace(isAll: boolean): Uint8Array {
    const { blocks, blockShift, nguid, eui64 } = this.#subsystem.namespace;
    const format = { lbads: blockShift, nlbaf: 0, flbas: 0 };
    if (isAll) return IdentifyNamespace.build(format);
    const size = { nsze: blocks, ncap: blocks, nuse: blocks };
    // Shared: several controllers, and what is deallocated reads as zeros.
    return IdentifyNamespace.build({ ...size, ...format, nmic: 1, dlfeat: 1, nguid, eui64 });
  }

  #log(controller: Controller, request: NvmeRequest, command: CommandOf<'GET_LOG_PAGE'>): void {
    const { lid, numdl, numdu, lpo, rae } = command;
    const bytes = (numdl + numdu * 65536 + 1) * 4;
    const page = this.#logPage(controller, lid);
    if (!page) {
      const status = NvmeStatus.INVALID_LOG_PAGE | DO_NOT_RETRY;
      return request.queue.answer(request, { status });
    }
    if (lpo % 4n !== 0n || lpo > BigInt(page.length)) {
      return request.queue.answer(request, invalidField());
    }
    if (rae === 0) controller.logWasRead(lid);
    this.#send(request, page.subarray(Number(lpo)), bytes);
  }

  #logPage(controller: Controller, lid: number): Uint8Array | undefined {
    if (controller.isDiscovery) {
      if (lid !== NvmeLogPage.DISCOVERY) return undefined;
      return discoveryLog(this.#subsystem.discovered, 1n);
    }
    switch (lid) {
      case NvmeLogPage.ERROR:
        return new Uint8Array(64);
      case NvmeLogPage.HEALTH:
        return this.#health();
      case NvmeLogPage.FIRMWARE: {
        const page = new Uint8Array(512);
        page[0] = 1;
        page.set(new TextEncoder().encode(this.#subsystem.firmware.padEnd(8)), 8);
        return page;
      }
      case NvmeLogPage.CHANGED_NAMESPACES:
        return new Uint8Array(4096);
      case NvmeLogPage.COMMAND_EFFECTS:
        return effects();
      default:
        return undefined;
    }
  }

  #health(): Uint8Array {
    const { counters, failure } = this.#subsystem;
    const { blockShift } = this.#subsystem.namespace;
    const units = (blocks: number): bigint =>
      BigInt(Math.ceil((blocks * 2 ** blockShift) / THOUSANDS_OF_512));
    return HealthLog.build({
      // The media are read only, and no more to be relied on.
      criticalWarning: failure ? 0x0c : 0,
      temperature: ROOM_TEMPERATURE_KELVIN,
      availableSpare: 100,
      availableSpareThreshold: 10,
      dataUnitsRead: units(counters.blocksRead),
      dataUnitsWritten: units(counters.blocksWritten),
      hostReads: BigInt(counters.reads),
      hostWrites: BigInt(counters.writes),
      mediaErrors: BigInt(counters.mediaErrors),
    });
  }

  /** `page`, and zeros behind it, as many bytes as are wanted. */
  #send(request: NvmeRequest, page: Uint8Array, wanted: number): void {
    const { queue, sgl } = request;
    if (sgl.kind !== 'keyed' || sgl.length < wanted || wanted > this.#staging.bufferBytes) {
      const status = NvmeStatus.DATA_SGL_LENGTH_INVALID | DO_NOT_RETRY;
      return queue.answer(request, { status });
    }
    void this.#staging.take().then((lease: Lease) => {
      const into = lease.bytes.subarray(0, wanted);
      into.fill(0);
      into.set(page.subarray(0, wanted));
      queue.answer(request, { data: lease.sge(wanted), sent: lease.release });
    });
  }
}

function invalidKeepAlive(): Answer {
  return { status: NvmeStatus.KEEP_ALIVE_INVALID | DO_NOT_RETRY };
}

/** Commands that there are, and what they do: a word each, admin first. */
function effects(): Uint8Array {
  const page = new Uint8Array(4096);
  const set = (opcode: number, what: number): void => writeNumber(page, opcode * 4, 4, what);
  const { FABRICS: _, ...admin } = NvmeAdminOpcode;
  for (const opcode of Object.values(admin)) set(opcode, SUPPORTED);
  const io = 256;
  set(io + NvmeOpcode.READ, SUPPORTED);
  set(io + NvmeOpcode.FLUSH, SUPPORTED);
  set(io + NvmeOpcode.WRITE, SUPPORTED | CHANGES_BLOCKS);
  set(io + NvmeOpcode.WRITE_ZEROES, SUPPORTED | CHANGES_BLOCKS);
  set(io + NvmeOpcode.DATASET_MANAGEMENT, SUPPORTED | CHANGES_BLOCKS);
  return page;
}
