/**
 * THE list of faults. Each row: `name`; `uses`, the thing that can have only one fault at a time; `explains`, the kinds
 * of traffic that may fail meanwhile (none: nothing may fail); `forMs`, how long it lasts; `recoveryMs`, how long after
 * its end failures still count as its own; `begin(world, random)`, which returns how to end it. `needs` names what
 * the machine must allow.
 */
import { clockFaults } from "./clock.mjs";
import { configFaults } from "./config.mjs";
import { connectionFaults } from "./connections.mjs";
import { diskFaults } from "./disk.mjs";
import { nameFaults } from "./names.mjs";
import { processFaults } from "./processes.mjs";
import { providerFaults } from "./providers.mjs";

export const FAULTS = [
  ...processFaults,
  ...connectionFaults,
  ...nameFaults,
  ...providerFaults,
  ...diskFaults,
  ...clockFaults,
  ...configFaults,
];
