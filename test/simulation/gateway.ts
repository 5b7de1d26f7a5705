/**
 * The gateway's code as one simulated process sees it. It is bundled into one file, which each process imports again,
 * so that processes share no variables.
 */
import { startApp } from "../../src/app/app.ts";
import { HANDED_SOCKETS } from "../../src/app/upgrade/messages.ts";
import { openPredecessor } from "../../src/app/upgrade/predecessor.ts";
import { systemClock } from "../../src/base/clock.ts";
import { followController } from "../../src/kubernetes/follow-controller.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { ADD, ADD_HELD, REPLACE } from "../../src/store/redis-store.ts";
import { watchAccounts } from "./accounts.ts";

export const gatewayCode = {
  startApp,
  openPredecessor,
  followController,
  silentLogger,
  handedSockets: HANDED_SOCKETS,
  clock: systemClock,
  redisScripts: { add: ADD, addHeld: ADD_HELD, replace: REPLACE },
  accounts: watchAccounts(),
};

export type GatewayCode = typeof gatewayCode;
