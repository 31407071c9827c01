/**
 * The enums of the API, as the engine defines them: members keep their C names without the prefix
 * (IBV_WC_SUCCESS is WcStatus.SUCCESS), values are libibverbs'.
 */
import type { AccessFlag, PlacementType, SendFlag, WcFlag } from '#build/abi.js';

export {
  AccessFlag,
  AsyncEvent,
  AsyncEventName,
  MrSetLayoutFlag,
  Mtu,
  MwType,
  PlacementType,
  QpAttribute,
  QpState,
  QpStateName,
  QpType,
  ReregMrFlag,
  SelectivityLevel,
  SendFlag,
  VendorError,
  WcFlag,
  WcOpcode,
  WcOpcodeName,
  WcStatus,
  WcStatusName,
  WrOpcode,
  WrOpcodeName,
} from '#build/abi.js';

/*
 * Masks: members of one enum joined by `|`, or 0. TypeScript refuses a member of another enum; the
 * type of `A | B` is number, which it accepts.
 */

/** Rights of a key or queue pair; 0: local reading alone. */
export type AccessFlags = AccessFlag | 0;
/** How a request is executed and completed. */
export type SendFlags = SendFlag | 0;
/** Flags of a completion: which of its fields are valid. */
export type WcFlags = WcFlag | 0;
/** Guarantees of a FLUSH. */
export type PlacementTypes = PlacementType | 0;
