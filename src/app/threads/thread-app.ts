/**
 * Runs the gateway in a worker thread. The main thread orders reloads and the shutdown, and receives log lines and
 * admin requests.
 */

import { MessageChannel, type MessagePort } from "node:worker_threads";
import { handleRemote, readRemote, remoteRequest } from "../../admin/merge/remote-call.ts";
import type { AdminEndpoint, AdminHandler } from "../../admin/server/endpoint.ts";
import { createUi } from "../../admin/ui/ui.ts";
import { listChildrenIn } from "../../base/child-registry.ts";
import { type Clock, clockSince } from "../../base/clock.ts";
import { sharedHeapLevel, withSharedLevel } from "../../base/heap-pressure.ts";
import { createIdSource } from "../../base/ids.ts";
import { givenSharedMemory } from "../../base/shared-memory.ts";
import { finish } from "../../base/sliced-work.ts";
import type { ConfigGeneration } from "../../config/compile/resource-registry.ts";
import type { Prepared, PreparedConfig, ProcessSettings } from "../../config/prepare.ts";
import { createInheritedSockets } from "../../pipeline/listen/inherited-sockets.ts";
import type { ListenerEnv } from "../../pipeline/listen/listener-env.ts";
import { createListeners, type Listeners, toServed } from "../../pipeline/listen/listeners.ts";
import { trustedPeers } from "../../pipeline/listen/request-entry.ts";
import type { Served } from "../../pipeline/phases/pipeline-env.ts";
import { RowQueue } from "../../record/history/history.ts";
import type { LogOutput } from "../../record/log/log-output.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { registerThreadMetrics } from "../../record/log/process-metrics.ts";
import { createRequestRecords } from "../../record/request-records.ts";
import type { BusPeer } from "../../store/process-bus.ts";
import { createRemoteStore, type RemoteStore, type StoreRequest } from "../../store/remote-store.ts";
import { createConfiguredAudit, remoteAuditFile } from "../audit.ts";
import { fittingLimits, watchHeapAndLog } from "../capacity.ts";
import { createConfigLoader } from "../config-loader.ts";
import { openConfiguredStore, storeSettings } from "../load-at-start.ts";
import { historyRecorder, keepHistory, loadTelemetry, onlySignals } from "../observability.ts";
import { operatorEndpoints } from "../operator-endpoints.ts";
import { firstLoad } from "../reload.ts";
import { logFilter, openServices } from "../services.ts";
import { createShutdown, drainBackends, suspendedCallsEnded } from "../shutdown.ts";
import { createHandedSockets } from "../upgrade/handed-sockets.ts";
import { createForwarding, type Forwarding } from "./forwarding.ts";
import type { FromThread, Order, Report, Snapshot, ThreadData, ToThread } from "./messages.ts";
import { startHeartbeat } from "./thread-watch.ts";

export interface ThreadApp {
  unexpected(error: unknown): void;
}

export function runThread(data: ThreadData, port: MessagePort, moduleUrl: string): ThreadApp {
  const { thread, threads, version, environment, color } = data;
  listChildrenIn(data.children);
  const send = (message: FromThread, transfer: MessagePort[] = []): void => port.postMessage(message, transfer);
  const clock = clockSince(data.clockStartMs);
  const output = createThreadOutput(clock, (text) => send({ kind: "log", text }));
  const services = openServices({ clock, environment, output, color, threads });
  const { logging, logger, unexpected, tasks, resources } = services;
  const mainLevel = sharedHeapLevel(data.mainHeapLevel);
  const askMain = (question: StoreRequest): void => send({ kind: "store", question });
  let mainStore: RemoteStore | undefined;
  let toMainBus: BusPeer | undefined;
  const startedMs = clock.monotonicMs();
  startHeartbeat(clock, data.heartbeat);
  const shutdown = createShutdown(clock, logger);
  shutdown.at("outgoing", () => services.fetcher.close());
  shutdown.at("resources", resources.closeAll);

  let given: Snapshot = { texts: [], memory: new Map() };
  let ports: ReadonlyMap<string, number> = new Map();
  let prepared: { readonly generation: ConfigGeneration; readonly config: PreparedConfig } | undefined;
  let running: PreparedConfig | undefined;
  let listeners: Listeners | undefined;
  let served: ReadonlyMap<string, Served> = new Map();
  let forwarding: Forwarding | undefined;
  let telemetry: Awaited<ReturnType<typeof loadTelemetry>>;
  const ids = createIdSource();
  const handed = createHandedSockets(data.sockets);
  const inherited = createInheritedSockets(handed.forListeners);
  const collectMetrics = async () => services.metrics.collect();
  /** Holds ports that arrive before this thread serves. Their messages stay queued. */
  const earlyPeers = new Map<number, MessagePort>();
  const ownEndpoints: AdminEndpoint[] = [];
  const mainEndpoints: AdminEndpoint[] = [];

  const ui = createUi({ version, moduleUrl, endpoints: () => mainEndpoints });
  const sources = { read: () => [...given.texts], paths: () => [], content: () => "", canChange: false };
  const memory = givenSharedMemory(thread, () => given.memory);
  const loader = createConfigLoader(services, {
    sources,
    uiSource: ui.source,
    thread: String(thread),
    shared: () => memory,
  });

  const fromMain: AdminHandler = async (request) => {
    const channel = new MessageChannel();
    const answer = readRemote(channel.port1);
    send({ kind: "admin", request: await remoteRequest(request), port: channel.port2 }, [channel.port2]);
    return answer;
  };

  function prepare(snapshot: Snapshot): Report {
    discard();
    given = snapshot;
    const generation = resources.begin();
    let next: Prepared;
    try {
      next = finish(loader.load(generation, running));
    } catch (error) {
      generation.discard();
      throw error;
    }
    if (next.ok) prepared = { generation, config: next };
    else generation.discard();
    return next.ok ? {} : { problems: next.problems };
  }

  function discard(): void {
    prepared?.generation.discard();
    prepared = undefined;
  }

  async function commit(others: ReadonlyMap<string, number>): Promise<Report> {
    if (prepared === undefined) return { problems: ["nothing was prepared"] };
    const { generation, config } = prepared;
    ports = others;
    if (running === undefined) await openState(config.settings);
    // Admin requests can arrive before the listeners are open.
    running ??= config;
    listeners ??= open(config.settings, config.warnings);
    const next = new Map(config.topology.listeners.map((listener) => [listener.name, toServed(listener)]));
    const before = served;
    // Other threads can forward requests as soon as they serve this configuration.
    served = next;
    try {
      await listeners.apply(config.topology);
    } catch (error) {
      served = before;
      throw error;
    }
    prepared = undefined;
    // Changes of `config:` need a restart.
    running = { ...config, settings: running.settings };
    generation.commit();
    handed.closeUnused(inherited);
    return { ports: listeners.ports() };
  }

  async function openState(config: ProcessSettings): Promise<void> {
    const { kind } = storeSettings(config);
    // Only Redis accepts several connections. Any other store is open once, in the main thread.
    if (kind === "redis") await openConfiguredStore(services.store, config);
    else {
      const shared = new Int32Array(data.storeShared);
      const isShared = (): boolean => Atomics.load(shared, 0) === 1;
      mainStore = createRemoteStore(kind, clock, askMain, { isShort: () => mainLevel() !== "normal", isShared });
      services.store.switchTo(mainStore);
      toMainBus = services.store.processBus.connect((message) => send({ kind: "bus", message }), isShared);
    }
    shutdown.at("store", services.store.close);
    shutdown.at("measuring", registerThreadMetrics(services.metrics, String(thread)));
    await services.signingKey.open(config.process.sessionKey ?? []);
    shutdown.at("store", services.signingKey.close);
    const { instanceId } = data;
    const exporter = { redaction: config.redaction, ids, random: Math.random, version, instanceId, collectMetrics };
    const otlp = onlySignals(config.process.telemetry?.otlp, ["traces", "logs"]);
    telemetry = await loadTelemetry(otlp, services, exporter);
    if (telemetry !== undefined) shutdown.at("measuring", telemetry.close);
  }

  /** The main thread limits the number of rows that wait. */
  function historyRows(redact: (text: string) => string): RowQueue {
    const rows: RowQueue = new RowQueue({
      clock,
      maxRows: Number.POSITIVE_INFINITY,
      redact,
      send(batch) {
        send({ kind: "history", batch });
        rows.accepted();
      },
      dropped: () => undefined,
    });
    return rows;
  }

  function open(config: ProcessSettings, warnings: readonly string[]): Listeners {
    const { process: settings, redaction } = config;
    logging.setFilter(logFilter(data.logFilter));
    logging.setFormat(settings.logging?.format ?? "text");
    logging.setRedactor(redaction.text);
    const sequence = new Int32Array(data.sequence);
    const rows = historyRows(redaction.text);
    shutdown.at("measuring", () => rows.flush());
    const { auditFailing } = data;
    const auditFile = auditFailing && remoteAuditFile(auditFailing, (line) => send({ kind: "audit", line }));
    const audit = createConfiguredAudit(services, config, auditFile, telemetry?.log);
    const records = createRequestRecords(services, config, telemetry, audit, {
      nextSeq: () => Atomics.add(sequence, 0, 1),
      recorder: historyRecorder(config, (row) => rows.add(row)),
    });
    keepHistory(services, config, records.history, shutdown, thread);
    const heap = withSharedLevel(watchHeapAndLog(services), mainLevel);
    shutdown.at("measuring", heap.stop);
    const limits = fittingLimits(settings, undefined, thread === 1 ? logger : silentLogger);
    const log = logger.for("pipeline");
    const env: ListenerEnv = {
      clock,
      limits: {
        ...limits,
        maxConnections: Math.ceil(limits.maxConnections / threads),
        maxStreamsPerAddress: Math.ceil(limits.maxStreamsPerAddress / threads),
      },
      heap,
      memory: services.memory,
      // All threads have the same informational events, so only the first thread logs them.
      logger: thread === 1 ? log : { ...log, info: () => undefined },
      redaction,
      ids,
      random: Math.random,
      isTrustedPeer: trustedPeers(settings.trustedProxies ?? []),
      trace: records.trace,
      settled: records.settled,
      defect: records.defect,
      unexpected: (error, client) => unexpected.report("connection", error, { client }),
    };
    const forwards = createForwarding(data, env, (name) => served.get(name));
    for (const [number, peer] of earlyPeers) forwards.connect(number, peer);
    earlyPeers.clear();
    shutdown.at("outgoing", forwards.close);
    const opened = createListeners({
      ...env,
      forwardToThread: forwards.forwardToThread,
      metrics: services.metrics,
      tasks,
      inherited,
      sharedPort: ({ name }) => ports.get(name),
    });
    forwarding = forwards;
    const state = firstLoad(new Date(clock.now()), data.sources, warnings);
    const reloads = { running: () => running as PreparedConfig, state: () => state };
    const stop = (): Promise<void> => shutdown.run(0);
    const here = { records, heap, listeners: opened, reloads, shutdown, stop };
    const upgrade = () => Promise.resolve({ ok: false, reason: "ask the main thread" } as const);
    const parts = { version, startedMs, ui, sources, settings: config, ...here, upgrade, collectMetrics };
    const { all } = operatorEndpoints(services, parts);
    ownEndpoints.push(...all);
    for (const { path, doc, GET, POST } of all)
      mainEndpoints.push({ path, doc, ...(GET ? { GET: fromMain } : {}), ...(POST ? { POST: fromMain } : {}) });
    return opened;
  }

  async function drain({ drainMs, lingerMs, isUpgraded }: Extract<Order, { kind: "drain" }>): Promise<void> {
    if (running === undefined || listeners === undefined) return;
    const { topology } = running;
    const untilMs = clock.monotonicMs() + drainMs;
    drainBackends(topology);
    await listeners.close(drainMs, lingerMs);
    if (isUpgraded) await suspendedCallsEnded(topology, clock, untilMs);
  }

  async function execute(order: Order): Promise<Report> {
    switch (order.kind) {
      case "prepare":
        return prepare(order.snapshot);
      case "commit":
        return commit(order.ports);
      case "discard":
        discard();
        return {};
      case "drain":
        await drain(order);
        return {};
      case "metrics":
        return { metrics: services.metrics.collect() };
      case "end":
        await shutdown.run(0);
        output.flushSync();
        return { metrics: services.metrics.collect() };
    }
  }

  port.on("message", (message: ToThread) => {
    if (message.kind === "admin") {
      void handleRemote(message.request, ownEndpoints, message.port);
      return;
    }
    if (message.kind === "peer") {
      if (forwarding) forwarding.connect(message.thread, message.port);
      else earlyPeers.set(message.thread, message.port);
      return;
    }
    if (message.kind === "bus") {
      toMainBus?.received(message.message);
      return;
    }
    if (message.kind === "store") {
      mainStore?.answered(message.answer);
      return;
    }
    const { id, order } = message;
    void execute(order)
      .catch((error): Report => ({ problems: [(error as Error).message] }))
      .then((report) => send({ kind: "report", id, report }));
  });
  return { unexpected: (error) => unexpected.report("process", error) };
}

/** Log lines are batched before they are sent to the main thread, which writes them. */
const GATHER_MS = 20;
const GATHER_CHARS = 32 * 1024;

export function createThreadOutput(clock: Clock, send: (text: string) => void): LogOutput {
  let waiting = "";
  let isScheduled = false;

  function flush(): void {
    isScheduled = false;
    if (waiting === "") return;
    send(waiting);
    waiting = "";
  }

  return {
    write(line) {
      waiting += line;
      if (waiting.length >= GATHER_CHARS) flush();
      if (isScheduled || waiting === "") return;
      isScheduled = true;
      clock.after(GATHER_MS, flush);
    },
    dropped: () => 0,
    flushSync: flush,
  };
}
