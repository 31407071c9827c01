/** The process that has the device of one program: host/bridge/sidecar.c starts it. */
import { readOptions } from './launch.js';
import { DESCRIPTORS } from './operations.js';
import { serveProgram } from './serve-program.js';

process.exit((await serveProgram(readOptions(), DESCRIPTORS)) ? 0 : 1);
