/**
 * Fields of datagrams that describe paths of a fabric. Verbena sends them as 0 and reads none; for
 * explainMad.
 */
import { bits, bytes } from './mad-fields.js';

/** Of a REQ. */
export const PRIMARY_RATE = {
  primaryFlowLabel: bits(88, 20),
  primaryPacketRate: bits(91, 6, 2),
  primaryTrafficClass: bits(92, 8),
} as const;
export const PRIMARY_LEVEL = {
  primarySl: bits(94, 4),
  primarySubnetLocal: bits(94, 1, 4),
} as const;
export const ALTERNATE = {
  alternateLocalLid: bits(96, 16),
  alternateRemoteLid: bits(98, 16),
  alternateLocalGid: bytes(100, 16),
  alternateRemoteGid: bytes(116, 16),
  alternateFlowLabel: bits(132, 20),
  alternatePacketRate: bits(135, 6, 2),
  alternateTrafficClass: bits(136, 8),
  alternateHopLimit: bits(137, 8),
  alternateSl: bits(138, 4),
  alternateSubnetLocal: bits(138, 1, 4),
  alternateLocalAckTimeout: bits(139, 5),
} as const;

/** Of a LAP. */
export const LOADED = {
  alternateLocalLid: bits(20, 16),
  alternateRemoteLid: bits(22, 16),
  alternateLocalGid: bytes(24, 16),
  alternateRemoteGid: bytes(40, 16),
  alternateFlowLabel: bits(56, 20),
  alternateTrafficClass: bits(59, 8),
  alternateHopLimit: bits(60, 8),
  alternatePacketRate: bits(61, 6, 2),
  alternateSl: bits(62, 4),
  alternateSubnetLocal: bits(62, 1, 4),
  alternateLocalAckTimeout: bits(63, 5),
} as const;
