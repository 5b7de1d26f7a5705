/**
 * Defines the kind GatewayParameters, which configures the data plane that the controller deploys for a Gateway. A
 * GatewayClass or a Gateway refers to it with `parametersRef`.
 */

import { z } from "zod";
import { defined } from "../../json/json.ts";
import { validate } from "../schema/problems.ts";
import { type Fields, fieldsOf, textOf } from "../text/value-shapes.ts";
import { type Cluster, type KubernetesObject, specOf } from "./cluster.ts";
import { type DataPlaneConfig, dataPlaneConfigSchema, readDataPlaneConfig } from "./data-plane-config.ts";
import { POLICY_API_GROUP, type Verdict } from "./documents.ts";
import { clusterDocument } from "./snapshot.ts";

export const PARAMETERS_KIND = "GatewayParameters";

const texts = () => z.record(z.string(), z.string()).optional();

export const parametersSchema = z.strictObject({
  replicas: z
    .int()
    .min(1)
    .max(1000)
    .optional()
    .describe("The number of pods. With 1, the field of the Deployment is not set, so that an autoscaler can own it."),
  autoscaling: z
    .strictObject({
      minReplicas: z.int().min(1).max(1000).optional().describe("The smallest number of pods. Default: 1."),
      maxReplicas: z.int().min(1).max(1000).describe("The largest number of pods."),
      targetCpuUtilization: z
        .int()
        .min(1)
        .max(1000)
        .optional()
        .describe("The average CPU usage of the pods, in percent of their CPU request. Default: 70."),
      targetMemoryUtilization: z
        .int()
        .min(1)
        .max(1000)
        .optional()
        .describe("The average memory usage of the pods, in percent of their memory request."),
    })
    .refine(({ minReplicas = 1, maxReplicas }) => minReplicas <= maxReplicas, "`minReplicas` is above `maxReplicas`")
    .optional()
    .describe("Creates a HorizontalPodAutoscaler, which sets the number of pods instead of `replicas`."),
  serviceType: z
    .enum(["LoadBalancer", "NodePort", "ClusterIP", "None"])
    .optional()
    .describe("The type of the Service. `None` creates a headless Service."),
  serviceAnnotations: texts().describe("Annotations of the Service, for example for a cloud load balancer."),
  podAnnotations: texts().describe("Annotations of the pods."),
  podLabels: texts().describe("Labels of the pods. Those of the controller cannot be replaced."),
  nodeSelector: texts().describe("Labels of the nodes on which pods may run."),
  tolerations: z
    .array(
      z.strictObject({
        key: z.string().optional().describe("The taint. If it is absent, `operator` must be `Exists`."),
        operator: z.enum(["Exists", "Equal"]).optional().describe("How the value is compared. Default: Equal."),
        value: z.string().optional().describe("The value of the taint."),
        effect: z.enum(["NoSchedule", "PreferNoSchedule", "NoExecute"]).optional().describe("Default: all effects."),
        tolerationSeconds: z.int().optional().describe("How long a pod stays on a node with the effect `NoExecute`."),
      }),
    )
    .max(64)
    .optional()
    .describe("Taints of nodes on which pods may run."),
  priorityClassName: z.string().min(1).optional().describe("The PriorityClass of the pods."),
  resources: z
    .strictObject({
      requests: texts().describe('Requested resources, as strings, for example `cpu: "1"`.'),
      limits: texts().describe("Limits of resources, as strings."),
    })
    .optional()
    .describe("Resources of the container; each map replaces the default."),
  config: dataPlaneConfigSchema
    .optional()
    .describe(
      "Settings of the data plane, as in the `config` section of a file. A change replaces the pods. Secrets are references to Secrets in the namespace of the Gateway.",
    ),
});

/** The references to Secrets in `config` are resolved before its fields are checked. */
const writtenSchema = parametersSchema.extend({ config: z.record(z.string(), z.unknown()).optional() });

type WrittenParameters = z.output<typeof writtenSchema>;

export interface GatewayParameters extends Omit<WrittenParameters, "config"> {
  readonly config?: DataPlaneConfig;
}

/** Returns a verdict with the reason InvalidParameters if the reference or its object is invalid. */
export function readParameters(
  reference: Fields,
  namespace: string | undefined,
  cluster: Cluster,
): WrittenParameters | Verdict {
  const { group, kind } = reference;
  const name = textOf(reference.name) ?? "";
  if (group !== POLICY_API_GROUP || kind !== PARAMETERS_KIND)
    return invalid(
      `parametersRef: ${String(kind)} of the group ${String(group)} is not supported: use ${PARAMETERS_KIND}`,
    );
  if (namespace === undefined) return invalid("parametersRef.namespace: required field is missing");
  const object = cluster.object(PARAMETERS_KIND, namespace, name);
  if (object === undefined) return invalid(`${shownReference(namespace, name)} was not found`);
  const checked = validate(writtenSchema, clusterDocument(object), specOf(object), ["spec"]);
  const { problems } = readDataPlaneConfig(fieldsOf(specOf(object).config), () => undefined);
  const all = [...(checked.ok ? [] : checked.problems), ...problems];
  if (checked.ok && all.length === 0) return checked.value;
  return invalid(`${shownReference(namespace, name)}: ${problemText(all)}`);
}

function shownReference(namespace: string | undefined, name: unknown): string {
  return `parametersRef: ${PARAMETERS_KIND} ${namespace}/${String(name)}`;
}

function problemText(problems: readonly { readonly path: string; readonly message: string }[]): string {
  return problems.map(({ path, message }) => `${path}: ${message}`).join("; ");
}

function invalid(message: string): Verdict {
  return { isTrue: false, reason: "InvalidParameters", message };
}

export function isVerdict<Parameters extends object>(read: Parameters | Verdict): read is Verdict {
  return "isTrue" in read;
}

/**
 * Merges the parameters of the class and of the Gateway, which takes precedence for each field, and for each field of
 * `config`. Returns a verdict if either is invalid.
 */
export function parametersOf(
  gateway: KubernetesObject,
  gatewayClass: KubernetesObject | undefined,
  cluster: Cluster,
): GatewayParameters | Verdict {
  const ofClass = fieldsOf(gatewayClass && specOf(gatewayClass).parametersRef);
  const own = fieldsOf(fieldsOf(specOf(gateway).infrastructure).parametersRef);
  const { namespace = "" } = gateway.metadata;
  const read = (reference: Fields, from: string | undefined): WrittenParameters | Verdict =>
    Object.keys(reference).length === 0 ? {} : readParameters(reference, from, cluster);
  const common = read(ofClass, textOf(ofClass.namespace));
  if (isVerdict(common)) return invalid(`GatewayClass ${gatewayClass?.metadata.name} is not accepted`);
  const ofGateway = read(own, namespace);
  if (isVerdict(ofGateway)) return invalid(`spec.infrastructure.${ofGateway.message}`);
  const { replicas, autoscaling, config: commonConfig, ...parameters } = common;
  const { config: ownConfig, ...ownParameters } = ofGateway;
  // Both determine the number of pods, so one of the Gateway replaces either of the class.
  const isScaled = ofGateway.replicas !== undefined || ofGateway.autoscaling !== undefined;
  const number = {
    ...defined({ replicas, autoscaling }),
  };
  const merged = { ...(isScaled ? {} : number), ...parameters, ...ownParameters };
  if (commonConfig === undefined && ownConfig === undefined) return merged;
  const { problems, config } = readDataPlaneConfig({ ...commonConfig, ...ownConfig }, ({ name, key }) => {
    const text = cluster.secret(namespace, name)?.get(key);
    // A value created from a file often ends with an unintended line break.
    if (text !== undefined && text !== "") return { text: text.replace(/\r?\n$/, "") };
    const secret = `Secret ${namespace}/${name}`;
    if (text === "") return { problem: `key ${key} of ${secret} is empty` };
    return { problem: cluster.secret(namespace, name) ? `${secret} has no key ${key}` : `${secret} was not found` };
  });
  if (config !== undefined) return { ...merged, config };
  const names = [
    ...(commonConfig === undefined ? [] : [shownReference(textOf(ofClass.namespace), ofClass.name)]),
    ...(ownConfig === undefined ? [] : [shownReference(namespace, own.name)]),
  ];
  return invalid(`${names.join(", ")}: ${problemText(problems)}`);
}
