/**
 * `node --import verbena/offload app.js`: from here on `node:dgram`, imported or required, is
 * `verbena/dgram`. The program's own files are loaded after this one.
 */
import type dgram from 'node:dgram';
import { syncBuiltinESMExports } from 'node:module';
import { replacePlain } from '../link/plain-dgram.js';
import { Socket, createSocket } from './index.js';

replacePlain(createSocket, Socket as unknown as typeof dgram.Socket);
syncBuiltinESMExports();
