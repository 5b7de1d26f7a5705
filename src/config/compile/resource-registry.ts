/**
 * Manages long-lived resources that survive a reload, such as connection pools and rate limit buckets. A new
 * configuration acquires each resource it needs by key and definition, and the key contains the resource's owner. When it starts to serve, the registry retires or
 * closes the resources that it did not acquire.
 */
import type { OwnedKey } from "../../base/owner.ts";

export interface ConfigGeneration {
  acquire<Resource>(
    key: OwnedKey,
    definition: unknown,
    open: () => Resource,
    close?: (resource: Resource) => void | Promise<void>,
    retire?: (resource: Resource) => Promise<void>,
  ): Resource;
  serving(action: () => void): void;
  /**
   * Call this when the new configuration serves. Retires or closes the resources that only the old configuration used.
   */
  commit(): void;
  /** Call this when the new configuration is rejected. Closes the resources that were opened for it. */
  discard(): void;
}

export interface ResourceRegistry {
  begin(): ConfigGeneration;
  /** Resolves when every resource is closed. */
  closeAll(): Promise<void>;
}

interface Entry {
  readonly resource: unknown;
  close(): void | Promise<void>;
  retire?(): Promise<void>;
}

export function createResourceRegistry(onCloseError: (key: string, error: unknown) => void): ResourceRegistry {
  let current = new Map<string, Entry>();
  const retiring = new Map<Entry, string>();

  async function retire(key: string, entry: Entry): Promise<void> {
    retiring.set(entry, key);
    try {
      await entry.retire?.();
    } catch (error) {
      onCloseError(key, error);
    } finally {
      retiring.delete(entry);
    }
  }

  async function close(key: string, entry: Entry): Promise<void> {
    try {
      await entry.close();
    } catch (error) {
      onCloseError(key, error);
    }
  }

  return {
    begin() {
      // Resources refer to the generation that opened them, so it must not refer to their successors: once it is settled,
      // it refers to nothing.
      let next = new Map<string, Entry>();
      let actions: (() => void)[] = [];
      return {
        serving: (action) => void actions.push(action),
        acquire(key, definition, open, closeResource, retireResource) {
          const identity = `${key}\n${JSON.stringify(definition)}`;
          const known = next.get(identity) ?? current.get(identity);
          if (known) {
            next.set(identity, known);
            return known.resource as ReturnType<typeof open>;
          }
          const resource = open();
          next.set(identity, {
            resource,
            close: () => closeResource?.(resource),
            ...(retireResource ? { retire: () => retireResource(resource) } : {}),
          });
          return resource;
        },
        commit() {
          for (const [key, entry] of current)
            if (!next.has(key)) void (entry.retire ? retire(key, entry) : close(key, entry));
          const started = actions;
          current = next;
          next = new Map();
          actions = [];
          for (const action of started) {
            try {
              action();
            } catch (error) {
              onCloseError("new configuration", error);
            }
          }
        },
        discard() {
          const opened = next;
          next = new Map();
          actions = [];
          for (const [key, entry] of opened) if (!current.has(key)) void close(key, entry);
        },
      };
    },
    async closeAll() {
      const closing = [...current].map(([key, entry]) => close(key, entry));
      for (const [entry, key] of retiring) closing.push(close(key, entry));
      current = new Map();
      await Promise.all(closing);
    },
  };
}
