/**
 * The enums of the API, as the engine defines them: members keep their C names without the prefix
 * (IBV_WC_SUCCESS is WcStatus.SUCCESS), values are libibverbs'.
 */
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
