#!/usr/bin/env node
/** Starts the command. */
import { start } from './base/command.js';
import { makeProgram } from './main.js';

await start(makeProgram);
