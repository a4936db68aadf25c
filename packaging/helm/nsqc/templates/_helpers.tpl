{{/* The name of the release's objects. */}}
{{- define "nsqc.name" -}}
{{- ternary .Release.Name (printf "%s-nsqc" .Release.Name) (contains "nsqc" .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Labels that select the pods of a component: list of root and component. */}}
{{- define "nsqc.selector" -}}
app.kubernetes.io/name: nsqc
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "nsqc.labels" -}}
{{ include "nsqc.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "nsqc.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What comes after the name of a headless service: list of root and namespace. */}}
{{- define "nsqc.domain" -}}
{{ index . 1 }}.svc{{ with (index . 0).Values.clusterDomain }}.{{ . }}{{ end }}
{{- end }}

{{/* HOST:PORT of each lookup server, with commas: list of root and port. In this namespace the short name is enough. */}}
{{- define "nsqc.lookupd" -}}
{{- $root := index . 0 }}{{ $name := include "nsqc.name" $root }}
{{- range $i, $_ := until (int $root.Values.lookupd.replicas) }}
{{- if $i }},{{ end }}{{ printf "%s-lookupd-%d.%s-lookupd-nodes" $name $i $name }}
{{- if $root.Values.clusterDomain }}.{{ include "nsqc.domain" (list $root $root.Release.Namespace) }}{{ end }}:{{ index $ 1 }}
{{- end }}
{{- end }}

{{/* The name of this pod, and under which name others reach it: list of root and headless service. */}}
{{- define "nsqc.identity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: NSQC_BROADCAST_ADDRESS
  value: "$(POD_NAME).{{ index . 1 }}.{{ include "nsqc.domain" (list (index . 0) "$(POD_NAMESPACE)") }}"
{{- end }}

{{/* Variables of a component from its values. */}}
{{- define "nsqc.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{/* What all pods have in common: list of root, values of the component, and its name. */}}
{{- define "nsqc.pod" -}}
{{- $root := index . 0 }}{{ $values := index . 1 }}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity: {{ toYaml $values.affinity | nindent 2 }}
{{- else }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "nsqc.selector" (list $root (index . 2)) | nindent 8 }}
{{- end }}
{{- end }}

{{- define "nsqc.container" -}}
image: {{ include "nsqc.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Alive: started within 10 minutes, then restarted after 30 s without an answer. list of port and scheme. */}}
{{- define "nsqc.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 2
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /livez, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}
