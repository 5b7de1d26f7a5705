/**
 * The code of the Kubernetes controller, bundled into one file. Its processes share it, because the modules have no
 * variables.
 */
import { systemClock } from "../../src/base/clock.ts";
import { KINDS, pathOfKind } from "../../src/kubernetes/cluster-cache.ts";
import { startController } from "../../src/kubernetes/controller.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { fakeApi } from "../support/kubernetes/fake-api.ts";

export const controllerCode = {
  startController,
  fakeApi,
  collections: KINDS.map(pathOfKind),
  clock: systemClock,
  logger: silentLogger,
};

export type ControllerCode = typeof controllerCode;
