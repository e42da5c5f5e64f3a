package main

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cronSpec is that of the peer's CronJobs: the pod is the one that the agent-run operator
// makes.
func cronSpec(job *agentJob, uses *agentRuntime, auth *agentAuth, configHash string) batchv1.CronJobSpec {
	const user = int64(65532)
	scratch := func(name string) corev1.Volume {
		return corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Gi"))}},
		}
	}
	annotations := map[string]string{groupVersion().Group + "/config-hash": configHash}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(job), Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: job.Name + "-runner", AutomountServiceAccountToken: new(false),
			EnableServiceLinks: new(false), ActiveDeadlineSeconds: &job.Spec.TimeoutSeconds,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(user), RunAsGroup: new(user), FSGroup: new(user),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Volumes: []corev1.Volume{
				{
					Name: "config",
					VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: job.Name + "-config-" + configHash}},
					},
				},
				scratch("tmp"),
				scratch("home"),
			},
			Containers: []corev1.Container{{
				Name: "agent", Image: uses.Spec.Image, Command: uses.Spec.Command,
				Env: []corev1.EnvVar{
					{
						Name: uses.Spec.AuthEnvVar,
						ValueFrom: &corev1.EnvVarSource{
							SecretKeyRef: &corev1.SecretKeySelector{
								LocalObjectReference: corev1.LocalObjectReference{Name: auth.Spec.SecretRef.Name},
								Key:                  auth.Spec.SecretRef.Key,
							},
						},
					},
					{Name: "HOME", Value: "/home/agent"},
				},
				VolumeMounts: []corev1.VolumeMount{
					{
						Name:      "config",
						MountPath: uses.Spec.ConfigPath,
						ReadOnly:  true,
					},
					{Name: "tmp", MountPath: "/tmp"},
					{Name: "home", MountPath: "/home/agent"},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(
						false,
					),
					ReadOnlyRootFilesystem: new(true),
					RunAsNonRoot:           new(true),
					Capabilities:           &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	return batchv1.CronJobSpec{
		Schedule: job.Spec.Schedule, TimeZone: &job.Spec.Timezone, Suspend: &job.Spec.Suspend, ConcurrencyPolicy: batchv1.ForbidConcurrent,
		SuccessfulJobsHistoryLimit: new(int32(3)), FailedJobsHistoryLimit: new(int32(3)),
		JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(job), Annotations: annotations},
			Spec: batchv1.JobSpec{
				BackoffLimit: new(
					int32(0),
				),
				Completions:           new(int32(1)),
				Parallelism:           new(int32(1)),
				ActiveDeadlineSeconds: &job.Spec.TimeoutSeconds,
				Template:              pod,
			},
		},
	}
}
