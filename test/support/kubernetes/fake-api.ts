/**
 * A Kubernetes API server in memory that implements our client interface: pages, watches with bookmarks, versions,
 * conflicts, and faults on demand.
 */
import { type ApiClient, ApiError, type ApiRequest, type WatchHandler } from "../../../src/kubernetes/api-client.ts";

interface Stored {
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    labels?: Readonly<Record<string, string>>;
    annotations?: Readonly<Record<string, string>>;
    resourceVersion?: string;
    generation?: number;
  };
  [field: string]: unknown;
}

interface Watcher {
  readonly path: string;
  readonly handler: WatchHandler;
}

export interface FakeApi extends ApiClient {
  readonly requests: ApiRequest[];
  /** Paths of the watches that were opened, with their parameters. */
  readonly watches: string[];
  put(collection: string, object: Stored): void;
  remove(collection: string, namespace: string, name: string): void;
  get(collection: string, namespace: string, name: string): Stored | undefined;
  bookmark(): void;
  /** Ends all watches, as a server that goes away. */
  cut(error?: Error): void;
  /** Versions up to now are forgotten: whoever resumes there gets 410. */
  compact(): void;
  /** The next requests fail with this; undefined: no longer. */
  failWith(error: Error | undefined): void;
  /** A collection that does not exist. */
  hide(collection: string): void;
  show(collection: string): void;
  /** Makes collections that exist but are empty. */
  install(...collections: string[]): void;
}

export function fakeApi(): FakeApi {
  const collections = new Map<string, Map<string, Stored>>();
  const history: { collection: string; version: number; type: string; object: Stored }[] = [];
  const watchers = new Set<Watcher>();
  const hidden = new Set<string>();
  const requests: ApiRequest[] = [];
  const watches: string[] = [];
  let version = 100;
  let forgotten = 0;
  let failure: Error | undefined;

  const listOf = (collection: string): Map<string, Stored> => {
    const known = collections.get(collection) ?? new Map<string, Stored>();
    collections.set(collection, known);
    return known;
  };
  const keyOf = (namespace: string | undefined, name: string): string => `${namespace ?? ""}/${name}`;

  function record(collection: string, type: string, object: Stored): void {
    history.push({ collection, version, type, object });
    for (const watcher of watchers)
      if (watcher.path.split("?")[0] === collection) watcher.handler.event({ type, object });
  }

  function store(collection: string, object: Stored): Stored {
    version += 1;
    const key = keyOf(object.metadata.namespace, object.metadata.name);
    const isNew = !listOf(collection).has(key);
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
    listOf(collection).set(key, stored);
    record(collection, isNew ? "ADDED" : "MODIFIED", stored);
    return stored;
  }

  function find(path: string): { collection: string; key: string; stored: Stored | undefined } {
    const [, root = "", namespace, plural = "", name = ""] =
      /^(\/apis?\/(?:[^/]+\/)?v[^/]+)(?:\/namespaces\/([^/]+))?\/([^/]+)\/([^/]+)/.exec(path) ?? [];
    // Namespaced writes go to the collection of all namespaces.
    const collection = `${root}/${plural}`;
    const key = keyOf(namespace, name);
    return { collection, key, stored: listOf(collection).get(key) };
  }

  return {
    requests,
    watches,
    async request(request) {
      requests.push(request);
      await Promise.resolve();
      if (failure) throw failure;
      const [path = "", query = ""] = request.path.split("?");
      const parameters = new URLSearchParams(query);
      if (hidden.has(path)) throw new ApiError(404, "NotFound", "the server could not find the requested resource");
      if (request.method === "GET" && collections.has(path)) {
        const all = [...listOf(path).values()];
        const from = Number(parameters.get("continue") ?? 0);
        const limit = Number(parameters.get("limit") ?? all.length);
        const next = from + limit < all.length ? String(from + limit) : undefined;
        return { metadata: { resourceVersion: String(version), continue: next }, items: all.slice(from, from + limit) };
      }
      if (request.method === "POST") {
        const object = request.body as Stored;
        const collection = path.replace(/\/namespaces\/[^/]+/, "");
        if (listOf(collection).has(keyOf(object.metadata.namespace, object.metadata.name)))
          throw new ApiError(409, "AlreadyExists", "it exists");
        return store(collection, object);
      }
      const { collection, stored } = find(path);
      if (stored === undefined) throw new ApiError(404, "NotFound", `${path} not found`);
      if (request.method === "GET") return stored;
      const body = request.body as Stored;
      const wanted = body.metadata?.resourceVersion;
      if (wanted !== undefined && wanted !== stored.metadata.resourceVersion)
        throw new ApiError(409, "Conflict", "the object has been modified");
      if (request.method === "PUT") return store(collection, body);
      return store(collection, { ...stored, ...body, metadata: { ...stored.metadata } });
    },
    watch(path, handler) {
      watches.push(path);
      const [collection = "", query = ""] = path.split("?");
      const from = Number(new URLSearchParams(query).get("resourceVersion"));
      const watcher = { path, handler };
      let isOver = false;
      queueMicrotask(() => {
        if (isOver) return;
        if (failure) return handler.end(failure);
        if (hidden.has(collection)) return handler.end(new ApiError(404, "NotFound", "not found"));
        if (from < forgotten) {
          handler.event({
            type: "ERROR",
            object: { code: 410, reason: "Expired", message: "too old resource version" },
          });
          return undefined;
        }
        watchers.add(watcher);
        for (const one of history)
          if (one.collection === collection && one.version > from)
            handler.event({ type: one.type, object: one.object });
        return undefined;
      });
      return () => {
        isOver = true;
        watchers.delete(watcher);
      };
    },
    close: () => undefined,
    put: (collection, object) => void store(collection, object),
    remove(collection, namespace, name) {
      version += 1;
      const stored = listOf(collection).get(keyOf(namespace, name));
      listOf(collection).delete(keyOf(namespace, name));
      if (stored)
        record(collection, "DELETED", {
          ...stored,
          metadata: { ...stored.metadata, resourceVersion: String(version) },
        });
    },
    get: (collection, namespace, name) => listOf(collection).get(keyOf(namespace, name)),
    bookmark() {
      version += 1;
      for (const { handler } of watchers)
        handler.event({ type: "BOOKMARK", object: { metadata: { resourceVersion: String(version) } } });
    },
    cut(error) {
      const all = [...watchers];
      watchers.clear();
      for (const { handler } of all) handler.end(error);
    },
    compact() {
      forgotten = version;
    },
    failWith(error) {
      failure = error;
    },
    hide: (collection) => void hidden.add(collection),
    show: (collection) => void hidden.delete(collection),
    install(...names) {
      for (const collection of names) listOf(collection);
    },
  };
}
