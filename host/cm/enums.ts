/** The enums of librdmacm and of the connection manager: C names without their prefix. */

/** `enum rdma_port_space`: what a port means; the upper part of a service id. */
export const PortSpace = Object.freeze({
  TCP: 0x0106,
  UDP: 0x0111,
  IB: 0x013f,
});

/** `enum rdma_cm_event_type`. */
export const CmEventType = Object.freeze({
  ADDR_RESOLVED: 0,
  ADDR_ERROR: 1,
  ROUTE_RESOLVED: 2,
  ROUTE_ERROR: 3,
  CONNECT_REQUEST: 4,
  CONNECT_RESPONSE: 5,
  CONNECT_ERROR: 6,
  UNREACHABLE: 7,
  REJECTED: 8,
  ESTABLISHED: 9,
  DISCONNECTED: 10,
  DEVICE_REMOVAL: 11,
  MULTICAST_JOIN: 12,
  MULTICAST_ERROR: 13,
  ADDR_CHANGE: 14,
  TIMEWAIT_EXIT: 15,
  ADDRINFO_RESOLVED: 16,
  ADDRINFO_ERROR: 17,
  USER: 18,
});
export type CmEventType = (typeof CmEventType)[keyof typeof CmEventType];
/** Names of CmEventType. */
export type CmEventName = keyof typeof CmEventType;

/** `enum rdma_cm_mc_join_flags`. */
export const McJoinFlag = Object.freeze({ FULLMEMBER: 0, SENDONLY_FULLMEMBER: 1 });

/** Why a connection was refused (IBA 12.6.7.2). */
export const RejectReason = Object.freeze({
  NO_QP: 1,
  NO_EEC: 2,
  NO_RESOURCES: 3,
  TIMEOUT: 4,
  UNSUPPORTED: 5,
  INVALID_COMM_ID: 6,
  INVALID_COMM_INSTANCE: 7,
  INVALID_SERVICE_ID: 8,
  INVALID_TRANSPORT_TYPE: 9,
  STALE_CONN: 10,
  RDC_NOT_EXIST: 11,
  INVALID_GID: 12,
  INVALID_LID: 13,
  INVALID_SL: 14,
  INVALID_TRAFFIC_CLASS: 15,
  INVALID_HOP_LIMIT: 16,
  INVALID_PACKET_RATE: 17,
  INVALID_ALT_GID: 18,
  INVALID_ALT_LID: 19,
  INVALID_ALT_SL: 20,
  INVALID_ALT_TRAFFIC_CLASS: 21,
  INVALID_ALT_HOP_LIMIT: 22,
  INVALID_ALT_PACKET_RATE: 23,
  PORT_CM_REDIRECT: 24,
  PORT_REDIRECT: 25,
  INVALID_MTU: 26,
  INSUFFICIENT_RESP_RESOURCES: 27,
  CONSUMER_DEFINED: 28,
  INVALID_RNR_RETRY: 29,
  DUPLICATE_LOCAL_COMM_ID: 30,
  INVALID_CLASS_VERSION: 31,
  INVALID_FLOW_LABEL: 32,
  INVALID_ALT_FLOW_LABEL: 33,
  VENDOR_OPTION_NOT_SUPPORTED: 35,
  /** Between peers of our own kind: the listener requires `auth`. */
  AUTH_REQUIRED: 0xff01,
  /** The listener does not have the key. */
  AUTH_UNKNOWN_KEY: 0xff02,
  /** The listener has no `auth`. */
  AUTH_UNSUPPORTED: 0xff03,
});

/** The message that a REJ or an MRA answers. */
export const AboutMessage = Object.freeze({ REQ: 0, REP: 1, OTHER: 2 });

/** How a service id resolution ended (IBA 12.11.2). */
export const SidrStatus = Object.freeze({
  SUCCESS: 0,
  UNSUPPORTED: 1,
  REJECT: 2,
  NO_QP: 3,
  REDIRECT: 4,
  UNSUPPORTED_VERSION: 5,
});

/** How a LAP ended (IBA 12.8.2.2). */
export const ApStatus = Object.freeze({ LOADED: 0, INVALID_COMM_ID: 1, UNSUPPORTED: 2 });

/** Transport service type of a REQ. */
export const TransportService = Object.freeze({ RC: 0, UC: 1 });

/** The Q_Key of datagram queue pairs in PortSpace.UDP and of multicast groups (RDMA_UDP_QKEY). */
export const RDMA_UDP_QKEY = 0x01234567;

/** A reason's name, for humans. */
export function rejectReasonName(reason: number): string {
  const names = Object.entries(RejectReason);
  return names.find(([, value]) => value === reason)?.[0] ?? `reason ${reason}`;
}
