/**
 * Finds the Gateways and routes that policies and routes refer to, in documents and in the standalone
 * configuration.
 */
import { fieldsOf } from "../text/value-shapes.ts";
import {
  type BackendUse,
  DEFAULT_NAMESPACE,
  GATEWAY_API_GROUP,
  type ListenerOutcome,
  type ObjectReference,
  type ResourceDocument,
  referenceText,
  type StandaloneTarget,
} from "./documents.ts";

export type Labels = Readonly<Record<string, string>>;

/** A Gateway presents its client certificate to Services with a BackendTLSPolicy. */
export type ClientCertificate = {
  /** Names the Gateway. */
  readonly owner: string;
} & (
  | { readonly cert: string; readonly key: string }
  /** Gives the reason if the Gateway names a certificate that is not usable. */
  | { readonly closed: string }
);

/** Describes a Gateway or a ListenerSet. */
export interface GatewayTarget {
  readonly reference: ObjectReference;
  /** The Gateway of a ListenerSet. */
  readonly gateway?: ObjectReference;
  /** Gives the reason if a ListenerSet is not merged into its Gateway. */
  readonly refusal?: string;
  /** Undefined in the standalone configuration, which selectors do not select. */
  readonly labels?: Labels;
  readonly listeners: readonly GatewayListener[];
  /** Lists the listeners of the Gateway and of all its ListenerSets. If absent, they are `listeners`. */
  readonly merged?: readonly GatewayListener[];
  readonly clientCertificate?: ClientCertificate;
}

export interface GatewayListener {
  /** Undefined in the standalone configuration, where a gateway is one listener. */
  readonly sectionName: string | undefined;
  /** Contains the key under `gateways`, or undefined if the listener cannot be served. */
  readonly gateway: string | undefined;
  readonly section?: string | undefined;
  /** True if the listener forwards connections, to which policies cannot apply. */
  readonly isTcp?: boolean;
  readonly port: number | undefined;
  readonly hostname: string | undefined;
  admits(namespace: string, kind: string): boolean;
  readonly outcome?: ListenerOutcome;
}

export interface RouteTarget {
  readonly reference: ObjectReference;
  readonly labels?: Labels;
  readonly rules: readonly { readonly sectionName: string | undefined; readonly route: string }[];
  readonly gateways: readonly ObjectReference[];
}

/** Describes a Service or a Backend with the route rules that refer to it. */
export interface BackendTarget {
  readonly reference: ObjectReference;
  readonly uses: { readonly sectionName: string | undefined; readonly backend: string; readonly isTcp: boolean }[];
  readonly gateways: Map<string, ObjectReference>;
}

/** Records the Services and Backends that routes use. */
export class BackendTargets {
  readonly #targets = new Map<string, BackendTarget>();

  add(use: BackendUse, backend: string, isTcp: boolean, gateways: readonly ObjectReference[]): void {
    const key = referenceText(use.reference);
    const target: BackendTarget = this.#targets.get(key) ?? { reference: use.reference, uses: [], gateways: new Map() };
    this.#targets.set(key, target);
    target.uses.push({ sectionName: use.portName, backend, isTcp });
    for (const gateway of gateways) target.gateways.set(referenceText(gateway), gateway);
  }

  find(reference: ObjectReference): BackendTarget | undefined {
    return this.#targets.get(referenceText(reference));
  }

  inNamespace(kind: string, namespace: string): BackendTarget[] {
    return [...this.#targets.values()].filter(
      ({ reference }) => reference.kind === kind && reference.namespace === namespace,
    );
  }
}

export function gatewayReference(namespace: string, name: string): ObjectReference {
  return { group: GATEWAY_API_GROUP, kind: "Gateway", namespace, name };
}

export function listenerSetReference(namespace: string, name: string): ObjectReference {
  return { group: GATEWAY_API_GROUP, kind: "ListenerSet", namespace, name };
}

export function routeReference(namespace: string, name: string, kind = "HTTPRoute"): ObjectReference {
  return { group: GATEWAY_API_GROUP, kind, namespace, name };
}

export function labelsOf(document: Pick<ResourceDocument, "value">): Labels {
  const labels = fieldsOf(fieldsOf(fieldsOf(document.value).metadata).labels);
  return Object.fromEntries(Object.entries(labels).map(([name, value]) => [name, String(value)]));
}

export function standaloneGateway({ name, port, isTcp = false }: StandaloneTarget): GatewayTarget {
  return {
    reference: gatewayReference(DEFAULT_NAMESPACE, name),
    listeners: [
      {
        sectionName: undefined,
        gateway: name,
        ...(isTcp ? { section: name, isTcp } : {}),
        port,
        hostname: undefined,
        // Routes of documents are not attached to standalone gateways that forward connections.
        admits: () => !isTcp,
      },
    ],
  };
}

export function standaloneRoute({ name, gateways = [] }: StandaloneTarget): RouteTarget {
  return {
    reference: routeReference(DEFAULT_NAMESPACE, name),
    rules: [{ sectionName: undefined, route: name }],
    gateways: gateways.map((gateway) => gatewayReference(DEFAULT_NAMESPACE, gateway)),
  };
}

/** Finds documents by name in their namespace, and targets of the standalone configuration in every namespace. */
export class TargetTable<Target extends { readonly reference: ObjectReference }> {
  readonly #documents = new Map<string, Target>();
  readonly #standalone = new Map<string, Target>();

  constructor(standalone: readonly Target[]) {
    for (const target of standalone) this.#standalone.set(target.reference.name, target);
  }

  addDocument(target: Target): void {
    this.#documents.set(keyOf(target.reference.namespace, target.reference.name), target);
  }

  has(namespace: string, name: string): boolean {
    return this.#documents.has(keyOf(namespace, name));
  }

  find(namespace: string, name: string): Target | undefined {
    return this.#documents.get(keyOf(namespace, name)) ?? this.#standalone.get(name);
  }

  /** Returns the documents of a namespace, without the standalone configuration. */
  inNamespace(namespace: string): Target[] {
    return [...this.#documents.values()].filter(({ reference }) => reference.namespace === namespace);
  }

  names(namespace: string): string[] {
    return [...this.inNamespace(namespace).map(({ reference }) => reference.name), ...this.#standalone.keys()];
  }
}

function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}
