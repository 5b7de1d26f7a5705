/**
 * Implements an upstream that responds to `initialize` and to the first list requests from the stored definition of its
 * server while the server starts. After the start, the upstream requests the same lists from the server, and notifies
 * the client if they differ. The wrappers around this upstream apply the same rules to stored and current lists.
 */
import type { WireTap } from "../../core/wire.ts";
import { find, member, slice } from "../../json/json-text.ts";
import { LISTS } from "../protocol/access.ts";
import { answerCall, type Call, type CallHandle, forwardedCall, ownCall } from "../protocol/call.ts";
import {
  asClientRequest,
  asResult,
  asServerMessage,
  notificationText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { type Definition, type KnownDefinition, MAX_DEFINITION_CHARS } from "./known-definitions.ts";
import {
  type OpenOutcome,
  readInitialized,
  type ServerAbout,
  type Upstream,
  type UpstreamListener,
  UpstreamWrapper,
} from "./upstream.ts";

const LIST_KINDS = ["tools", "prompts", "resources"] as const;

export class EarlyUpstream extends UpstreamWrapper {
  readonly #stored: KnownDefinition;
  /** Set while the client gets responses from it. */
  #early: { readonly definition: Definition; readonly about: ServerAbout; release(): void } | undefined = undefined;
  /** The stored lists that the client received. */
  readonly #sentLists = new Map<string, string>();
  /** What the server itself responded. */
  #initialized: string | undefined = undefined;
  #lists: Record<string, string> = {};
  #isClosed = false;
  /** False after a call, because it can change the lists of this session only. */
  #learnsLists = true;

  constructor(stored: KnownDefinition, user: UpstreamListener, make: (user: UpstreamListener) => Upstream) {
    super(user, make);
    this.#stored = stored;
  }

  override get about(): ServerAbout | undefined {
    return this.inner.about ?? this.#early?.about;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    let isOpen = false;
    this.inner.open((outcome) => {
      if (outcome.ok) this.#initialized = resultIn(outcome.answer);
      if (isOpen) this.#arrived(outcome);
      else {
        isOpen = true;
        this.#save();
        done(outcome);
      }
    }, wire);
    void this.#stored.read().then((definition) => {
      if (isOpen || this.#isClosed || definition === undefined) return;
      const answer = asResult(definition.initialized);
      const about = readInitialized(answer);
      const release = this.target.messages.hold(JSON.stringify(definition).length);
      if (about === undefined || release === undefined) return;
      isOpen = true;
      this.#lists = { ...definition.lists };
      this.#early = { definition, about: withListChanges(about), release };
      done({ ok: true, answer, about: this.#early.about });
    });
  }

  call(call: Call): CallHandle {
    const { method, params } = call.request;
    if (method === "tools/call") this.#learnsLists = false;
    if (LISTS[method] === undefined || params.cursor !== undefined) return this.inner.call(call);
    const stored = call.isLive === true ? undefined : this.#early?.definition.lists[method];
    if (stored !== undefined) {
      this.#sentLists.set(method, stored);
      return answerCall(call, asResult(stored));
    }
    if (!this.#learnsLists) return this.inner.call(call);
    const answered = (message: ServerMessage): void => {
      this.#learn(method, message);
      call.answered(message);
    };
    return this.inner.call(forwardedCall(call, { answered }));
  }

  override close(): Promise<void> {
    this.#isClosed = true;
    this.#endEarly();
    return super.close();
  }

  /** The server has started or failed after the client received the stored response to `initialize`. */
  #arrived(outcome: OpenOutcome): void {
    const early = this.#early;
    if (early === undefined) return;
    this.#endEarly();
    if (!outcome.ok) {
      for (const kind of LIST_KINDS) if (early.about.capabilities[kind] !== undefined) this.#listChanged(kind);
      return;
    }
    if (early.definition.initialized !== this.#initialized) this.#lists = {};
    this.#save();
    for (const [method, sent] of this.#sentLists) {
      const answered = (message: ServerMessage): void => {
        this.#learn(method, message);
        if (resultIn(message) !== sent) this.#listChanged(method.slice(0, method.indexOf("/")));
      };
      const failed = (): void => this.#listChanged(method.slice(0, method.indexOf("/")));
      this.inner.call(ownCall(asClientRequest(method, "{}"), { answered, failed }));
    }
    this.#sentLists.clear();
  }

  #listChanged(kind: string): void {
    this.user.notified(this, asServerMessage(notificationText(`notifications/${kind}/list_changed`, "{}")));
  }

  #endEarly(): void {
    this.#early?.release();
    this.#early = undefined;
  }

  /** Lists of several pages are not stored. */
  #learn(method: string, message: ServerMessage): void {
    if (!this.#learnsLists) return;
    const text = resultIn(message);
    if (text === undefined || member(text, 0, "nextCursor") !== undefined) delete this.#lists[method];
    else this.#lists[method] = text;
    this.#save();
  }

  #save(): void {
    if (this.#initialized === undefined) return;
    this.#stored.save({ initialized: this.#initialized, lists: { ...this.#lists } });
  }
}

/** Returns undefined for an error and for a result that is too large to be stored. */
function resultIn(message: ServerMessage): string | undefined {
  if (message.kind !== "result" || message.text.length > MAX_DEFINITION_CHARS) return undefined;
  const span = find(message.text, 0, "result");
  return span && slice(message.text, span);
}

/** The lists can change when the server is up, so the session announces that. */
function withListChanges(about: ServerAbout): ServerAbout {
  const capabilities: Record<string, unknown> = { ...about.capabilities };
  for (const kind of LIST_KINDS)
    if (capabilities[kind] !== undefined) capabilities[kind] = { ...(capabilities[kind] as object), listChanged: true };
  return { ...about, capabilities };
}
