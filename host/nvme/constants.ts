/**
 * Numbers of NVM Express: Base 1.4 (opcodes, statuses, features, log pages), over Fabrics 1.1
 * (commands, properties, discovery), RDMA transport (private data). Names are those of the
 * specifications, in the field's short form.
 */

/** Admin commands (Base 1.4 figure 138). */
export const NvmeAdminOpcode = Object.freeze({
  GET_LOG_PAGE: 0x02,
  IDENTIFY: 0x06,
  ABORT: 0x08,
  SET_FEATURES: 0x09,
  GET_FEATURES: 0x0a,
  ASYNC_EVENT_REQUEST: 0x0c,
  KEEP_ALIVE: 0x18,
  FABRICS: 0x7f,
});

/** I/O commands (Base 1.4 figure 346). */
export const NvmeOpcode = Object.freeze({
  FLUSH: 0x00,
  WRITE: 0x01,
  READ: 0x02,
  WRITE_ZEROES: 0x08,
  DATASET_MANAGEMENT: 0x09,
  FABRICS: 0x7f,
});

/** Fabrics command types (Fabrics 1.1 figure 15). */
export const NvmeFabricsType = Object.freeze({
  PROPERTY_SET: 0x00,
  CONNECT: 0x01,
  PROPERTY_GET: 0x04,
  AUTHENTICATION_SEND: 0x05,
  AUTHENTICATION_RECEIVE: 0x06,
});

/** Status code type in bits 8 to 10, status code in bits 0 to 7 (Base 1.4 section 4.6.1). */
export const NvmeStatus = Object.freeze({
  SUCCESS: 0x000,
  INVALID_OPCODE: 0x001,
  INVALID_FIELD: 0x002,
  DATA_TRANSFER_ERROR: 0x004,
  INTERNAL_ERROR: 0x006,
  ABORT_REQUESTED: 0x007,
  INVALID_NAMESPACE: 0x00b,
  COMMAND_SEQUENCE_ERROR: 0x00c,
  INVALID_SGL_COUNT: 0x00e,
  DATA_SGL_LENGTH_INVALID: 0x00f,
  SGL_DESCRIPTOR_TYPE_INVALID: 0x011,
  SGL_OFFSET_INVALID: 0x016,
  KEEP_ALIVE_INVALID: 0x019,
  NAMESPACE_WRITE_PROTECTED: 0x020,
  LBA_OUT_OF_RANGE: 0x080,
  INVALID_LOG_PAGE: 0x109,
  ASYNC_EVENT_LIMIT: 0x105,
  FEATURE_NOT_SAVEABLE: 0x10d,
  FEATURE_NOT_CHANGEABLE: 0x10e,
  CONNECT_INCOMPATIBLE_FORMAT: 0x180,
  CONNECT_CONTROLLER_BUSY: 0x181,
  CONNECT_INVALID_PARAMETERS: 0x182,
  CONNECT_RESTART_DISCOVERY: 0x183,
  CONNECT_INVALID_HOST: 0x184,
  AUTHENTICATION_REQUIRED: 0x191,
  WRITE_FAULT: 0x280,
  UNRECOVERED_READ_ERROR: 0x281,
});

/** To try again makes no sense. */
export const DO_NOT_RETRY = 0x4000;

const STATUS_NAMES = new Map<number, string>(
  Object.entries(NvmeStatus).map(([name, value]) => [value, name]),
);

/** The name of a status, with or without DO_NOT_RETRY. */
export function nvmeStatusName(status: number): string {
  const code = status & 0x7ff;
  return STATUS_NAMES.get(code) ?? `status type ${code >> 8}, code 0x${(code & 255).toString(16)}`;
}

/** Controller properties (Fabrics 1.1 section 3.5): offset and bytes. */
export const NvmeProperty = Object.freeze({
  CAP: 0x00,
  VS: 0x08,
  CC: 0x14,
  CSTS: 0x1c,
  NSSR: 0x20,
});

export const NvmeFeature = Object.freeze({
  ARBITRATION: 0x01,
  POWER_MANAGEMENT: 0x02,
  TEMPERATURE_THRESHOLD: 0x04,
  ERROR_RECOVERY: 0x05,
  VOLATILE_WRITE_CACHE: 0x06,
  NUMBER_OF_QUEUES: 0x07,
  WRITE_ATOMICITY: 0x0a,
  ASYNC_EVENT_CONFIG: 0x0b,
  KEEP_ALIVE_TIMER: 0x0f,
  HOST_IDENTIFIER: 0x81,
});

export const NvmeLogPage = Object.freeze({
  ERROR: 0x01,
  HEALTH: 0x02,
  FIRMWARE: 0x03,
  CHANGED_NAMESPACES: 0x04,
  COMMAND_EFFECTS: 0x05,
  DISCOVERY: 0x70,
});

/** Data structures that IDENTIFY returns (CNS). */
export const NvmeCns = Object.freeze({
  NAMESPACE: 0x00,
  CONTROLLER: 0x01,
  ACTIVE_NAMESPACES: 0x02,
  NAMESPACE_DESCRIPTORS: 0x03,
  COMMAND_SET_CONTROLLER: 0x06,
});

/** Why a connection is refused (RDMA transport 1.0 figure 7), in the private data of a REJ. */
export const NvmeRdmaStatus = Object.freeze({
  INVALID_PRIVATE_DATA_LENGTH: 1,
  INVALID_RECFMT: 2,
  INVALID_QUEUE_ID: 3,
  INVALID_HSQSIZE: 4,
  INVALID_HRQSIZE: 5,
  NO_RESOURCES: 6,
  INVALID_IRD: 7,
  INVALID_ORD: 8,
  INVALID_CNTLID: 9,
});

export const DISCOVERY_NQN = 'nqn.2014-08.org.nvmexpress.discovery';
/** Where targets and discovery services listen. */
export const NVME_RDMA_PORT = 4420;
export const SQE_BYTES = 64;
export const CQE_BYTES = 16;
/** Of what Identify returns. */
export const IDENTIFY_BYTES = 4096;
/**
 * In the result of CONNECT (Fabrics 2.0 figure 25): the host authenticates the queue; it
 * authenticates the queue and sets up a secure channel.
 */
export const CONNECT_AUTHENTICATE = 1n << 17n;
export const CONNECT_SECURE_CHANNEL = 1n << 18n;
/** Any controller: the target makes one. */
export const CNTLID_DYNAMIC = 0xffff;
/** All namespaces. */
export const NSID_ALL = 0xffffffff;
/** NVM Express 1.4: what this target and this initiator are. */
export const NVME_VERSION = 0x00010400;
