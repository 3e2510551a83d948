{{/* What comes before the names of all objects. */}}
{{- define "knmstate.prefix" -}}
{{- with .Values.prefix }}{{ . }}-{{ end }}
{{- end }}

{{/* Where handlers and controller run: beside the operator, unless configured otherwise. */}}
{{- define "knmstate.handlerNamespace" -}}
{{- default .Release.Namespace .Values.handlerNamespace }}
{{- end }}

{{/* The one image of everything. A digest says more than a tag. */}}
{{- define "knmstate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}
