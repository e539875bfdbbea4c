{{- define "throng.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "throng.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "throng.labels" -}}
{{ include "throng.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "throng.check" -}}
{{- if .Values.cluster.enabled }}
{{- if not .Values.cluster.database }}{{ fail "cluster.database is missing: nodes share a journal on PostgreSQL, postgres://USER@HOST:PORT/DATABASE" }}{{ end }}
{{- if not .Values.existingSecret }}{{ fail "existingSecret is missing: nodes of several machines share a secret, under its key cluster-secret" }}{{ end }}
{{- end }}
{{- end }}
